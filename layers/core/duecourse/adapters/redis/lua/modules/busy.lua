-- Functions that are busy: since when, and how many tasks they are handed meanwhile. A verb that speaks of this requires
-- it where it is needed; it follows a script's first write.

local THROTTLED = 60000 -- ms for which a target counts as busy after an event that it had no room for
local STEP = 5000 -- ms
local FEWEST = 10 -- places that a busy target keeps: one invocation takes as many tasks
local LONGEST = 86400000 -- ms, the longest lease

-- A target counts as busy as long as a lease may last that it began: noted by its name, and by the kind of task, for the
-- record of one that runs tells no more.
local function fields_of(target, kind)
  return 'busy:' .. target, 'busy:kind:' .. kind
end

-- Until when, as it was noted, 0 for never. What no lease reaches was noted before the clock was put back.
local function until_of(known)
  local until_at = tonumber(known or 0)
  return until_at <= shard.NOW + LONGEST and until_at or 0
end

-- Notes until when, where that is known as much earlier: not for each of many begins.
local function note(field, known, until_at)
  if until_at > until_of(known) + STEP then
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
  return math.max(until_of(known[1]), until_of(known[2])) >= r.claimed
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
  since = tonumber(since or -1)
  if r.claimed > since or since > shard.NOW then
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
