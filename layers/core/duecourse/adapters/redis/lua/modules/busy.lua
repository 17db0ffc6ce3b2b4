-- Functions that are busy: since when, and how many tasks they are handed meanwhile. A verb that speaks of this requires
-- it where it is needed; it follows a script's first write.

local THROTTLED = 60000 -- ms for which a target counts as busy after an event that it had no room for
local SHARE = 6 -- of a lease: what is known to end so much earlier is not written again
local FEWEST = 10 -- places that a busy target keeps: one invocation takes as many tasks

-- A target counts as busy as long as a lease may last that it began: noted by its name, and by the kind of task, for the
-- record of one that runs tells no more.
local function fields_of(target, kind)
  return 'busy:' .. target, 'busy:kind:' .. kind
end

-- Notes until when, but not for each of many begins.
local function note(field, known, until_at)
  if until_at - tonumber(known or 0) > (until_at - shard.NOW) / SHARE then
    call('HSET', shard.META, field, values.text_of(until_at))
  end
end

-- Somebody runs a task of this kind, under a lease that ends then.
function busy.runs(kind, ends_at)
  local _, field = fields_of('', kind)
  note(field, call('HGET', shard.META, field), ends_at)
end

-- An event had no room at the target.
function busy.throttled(r)
  local field = fields_of(r.target, '')
  note(field, call('HGET', shard.META, field), shard.NOW + THROTTLED)
end

-- Whether the target of a delivery has begun or run anything since it was handed over.
function busy.is_busy(r)
  local known = call('HMGET', shard.META, fields_of(r.target, record.kind_of(r.rest)))
  return math.max(tonumber(known[1] or 0), tonumber(known[2] or 0)) >= r.claimed
end

local function places_of(text)
  local fits, since = match(text or '', '^(%d+):(%d+)$')
  return tonumber(fits), since
end

local function set_places(target, fits, since)
  call('HSET', shard.META, 'fits:' .. target, values.text_of(fits) .. ':' .. since)
end

-- A delivery came back that its target was too busy to begin: it has half of its places from now on, once for all that
-- it was handed before.
function busy.halve(r)
  local fits, since = places_of(call('HGET', shard.META, 'fits:' .. r.target))
  if r.claimed > tonumber(since or -1) then
    fits = fits or tonumber(call('HGET', shard.META, 'out:' .. r.target) or 0)
    set_places(r.target, math.max(math.floor(fits / 2), FEWEST), shard.NOW_TEXT)
  end
end

-- A target begins tasks of a kind, whose leases end then. Where it has fewer places it has one more.
function busy.begins(target, kind, ends_at)
  local by_target, by_kind = fields_of(target, kind)
  local known = call('HMGET', shard.META, by_target, by_kind, 'fits:' .. target)
  note(by_target, known[1], ends_at)
  note(by_kind, known[2], ends_at)
  local fits, since = places_of(known[3])
  if fits then
    set_places(target, fits + 1, since)
  end
end
