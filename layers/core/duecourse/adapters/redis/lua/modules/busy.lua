-- Functions that are busy: since when, and how many tasks they are handed meanwhile. A verb that speaks of this requires
-- it where it is needed; it follows a script's first write.

local THROTTLED = 60000 -- ms for which a target counts as busy after an event that it had no room for
local FEWEST = 10 -- places that a busy target keeps: one invocation takes as many tasks

-- What a target's tasks are known by: its name, and their kind, for the record of a task that runs tells no more.
function busy.names_of(r)
  return r.target, 'kind:' .. record.kind_of(r.rest)
end

-- A target, or whoever has a kind, counts as busy until then: as long as a lease may last that it began.
function busy.note(name, until_at)
  local field = 'busy:' .. name
  if until_at > tonumber(call('HGET', shard.META, field) or 0) then
    call('HSET', shard.META, field, values.text_of(until_at))
  end
end

function busy.note_throttle(r)
  busy.note(r.target, shard.NOW + THROTTLED)
end

-- Whether the target of a delivery has begun or run anything since it was handed over.
function busy.is_busy(r)
  local target, kind = busy.names_of(r)
  local known = call('HMGET', shard.META, 'busy:' .. target, 'busy:' .. kind)
  return math.max(tonumber(known[1] or 0), tonumber(known[2] or 0)) >= r.claimed
end

local function places_of(target)
  local fits, since = match(call('HGET', shard.META, 'fits:' .. target) or '', '^(%d+):(%d+)$')
  return tonumber(fits), since
end

local function set_places(target, fits, since)
  call('HSET', shard.META, 'fits:' .. target, values.text_of(fits) .. ':' .. since)
end

-- A delivery came back that its target was too busy to begin: it has half of its places from now on, once for all that
-- it was handed before.
function busy.halve(r)
  local fits, since = places_of(r.target)
  if r.claimed > tonumber(since or -1) then
    fits = fits or tonumber(call('HGET', shard.META, 'out:' .. r.target) or 0)
    set_places(r.target, math.max(math.floor(fits / 2), FEWEST), shard.NOW_TEXT)
  end
end

-- A target that has fewer places begins something: it has one more.
function busy.widen(target)
  local fits, since = places_of(target)
  if fits then
    set_places(target, fits + 1, since)
  end
end
