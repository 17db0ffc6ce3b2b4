-- Functions that are busy: until when they count as that, and how many tasks they are handed meanwhile.
--
-- A script requires it where it is needed, after the script's first write.

local THROTTLED = 60000 -- ms for which a target counts as busy after an event that it had no room for
local SHARE = 6 -- a sixth of a lease: an end that is later by less is not written
local FEWEST = 10 -- places that a busy target keeps: one invocation takes as many tasks
local LONGEST = 86400000 -- ms, the longest lease

-- A target counts as busy until the lease ends that it began last. That is noted by its name, and by the kind of task:
-- the record of a task that runs has no target.
local function fields_of(target, kind)
  return 'busy:' .. target, 'busy:kind:' .. kind
end

-- Instant until which a target was noted as busy, 0 for none. A mark that no lease reaches is from before a step back
-- of the clock.
local function until_of(known)
  local until_at = tonumber(known or 0)
  return until_at <= shard.NOW + LONGEST and until_at or 0
end

-- Notes an end that is later than the known one by that share of the time to it: many begins in a row cost few writes.
local function note(field, known, until_at)
  if until_at - until_of(known) > (until_at - shard.NOW) / SHARE then
    call('HSET', shard.META, field, values.text_of(until_at))
  end
end

-- Notes that a task of this kind runs, under a lease that ends then.
function busy.runs(kind, ends_at)
  local _, field = fields_of('', kind)
  note(field, call('HGET', shard.META, field), ends_at)
end

-- Notes that the target had no room for an event.
function busy.throttled(r)
  local field = fields_of(r.target, '')
  note(field, call('HGET', shard.META, field), shard.NOW + THROTTLED)
end

-- True if the target of a delivery has begun or run any task since the delivery was handed over.
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

-- Halves the places of a target that was too busy to begin a delivery, once for all deliveries handed over before.
function busy.halve(r)
  local fits, since = places_of(call('HGET', shard.META, 'fits:' .. r.target))
  since = tonumber(since or -1)
  if r.claimed > since or since > shard.NOW then
    fits = fits or tonumber(call('HGET', shard.META, 'out:' .. r.target) or 0)
    set_places(r.target, math.max(math.floor(fits / 2), FEWEST), shard.NOW_TEXT)
  end
end

-- Notes how many tasks one event of this target is to have. Forgets it where a whole event fits.
local function note_each(field, known, each)
  if each >= FEWEST and known then
    call('HDEL', shard.META, field)
  elseif each < FEWEST and each ~= tonumber(known or nil) then
    call('HSET', shard.META, field, values.text_of(each))
  end
end

-- Notes that a target begins tasks of a kind, whose leases end then. A target with fewer places gets one more. `each`
-- is how many tasks one event is to have, 0 where that is not known.
function busy.begins(target, kind, ends_at, each)
  local by_target, by_kind = fields_of(target, kind)
  local field = 'each:' .. target
  local known = call('HMGET', shard.META, by_target, by_kind, 'fits:' .. target, field)
  note(by_target, known[1], ends_at)
  note(by_kind, known[2], ends_at)
  if each > 0 then
    note_each(field, known[4], each)
  end
  local fits, since = places_of(known[3])
  if fits then
    set_places(target, fits + 1, since)
  end
end
