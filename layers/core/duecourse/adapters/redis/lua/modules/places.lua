-- Places at targets: each task that is handed over and not begun has one, and due tasks wait for them.

local TENTH = 10 -- of the places: so many must be free before it rings for what waits, so that few hand-overs take many
local FEWEST = 10 -- places that a busy target keeps: one invocation takes as many tasks
local THROTTLED = 60000 -- ms for which a target counts as busy after an event that it was too busy to take

local freed, left -- target -> how many places its tasks have left, and what named those in the index
local worked -- target, or 'kind:' and a kind -> until when it counts as busy
local began -- target -> true where it has begun a task
local missed -- target -> when the newest delivery was handed over that it was too busy to begin

function places.begin()
  freed, left, worked, began, missed = {}, {}, {}, {}, {}
end

-- What names a delivery's place in the index, before all that waits there.
function places.place_of(sid, target)
  return '\0' .. sid .. '\0' .. target
end

function places.free_place(sid, target)
  freed[target] = (freed[target] or 0) + 1
  left[#left + 1] = places.place_of(sid, target)
end

-- The same for a leased task whose record cannot be read, where it has such a place.
function places.free_lost_place(sid)
  local from = places.place_of(sid, '')
  local member = call('ZRANGEBYLEX', shard.WAITING, '[' .. from, '(\0' .. sid .. '\1', 'LIMIT', '0', '1')[1]
  if member then
    places.free_place(sid, sub(member, #from + 1))
  end
end

-- What waits for a place at a target, the longest due first.
function places.waiting_for(target, count)
  return call('ZRANGEBYLEX', shard.WAITING, '[' .. target .. '\0', '(' .. target .. '\1', 'LIMIT', '0', count)
end

function places.has_room(most, out)
  return out <= most - math.max(1, math.floor(most / TENTH))
end

-- Busy targets. A target counts as busy until the leases of what it began would end: that is noted by target at a begin,
-- and by kind at an extension, for the record of a task that runs does not name its target. -----------------------------

local function note(name, until_at)
  worked[name] = math.max(worked[name] or 0, until_at)
end

-- A target begins a task, whose lease ends then.
function places.note_begin(r, ends_at)
  began[r.target] = true
  note(r.target, ends_at)
  note('kind:' .. record.kind_of(r.rest), ends_at)
end

-- A task that was handed over runs on, under a lease that ends then.
function places.note_run(r, ends_at)
  note('kind:' .. record.kind_of(r.rest), ends_at)
end

-- A target did not take an event for want of room.
function places.note_throttle(r)
  note(r.target, shard.NOW + THROTTLED)
end

-- A delivery comes back that its target was too busy to begin.
function places.note_missed(r)
  missed[r.target] = math.max(missed[r.target] or 0, r.claimed)
end

-- Whether the target of a delivery has begun or run anything since it was handed over.
function places.is_busy(r)
  local known = call('HMGET', shard.META, 'busy:' .. r.target, 'busy:kind:' .. record.kind_of(r.rest))
  return math.max(tonumber(known[1] or 0), tonumber(known[2] or 0)) >= r.claimed
end

-- Writes down who is busy, and until when. It follows a script's first write.
function places.write_busy()
  for name, until_at in pairs(worked) do
    local field = 'busy:' .. name
    if until_at > tonumber(call('HGET', shard.META, field) or 0) then
      call('HSET', shard.META, field, values.text_of(until_at))
    end
  end
  worked = {}
end

-- How many places a target has: half of what it had, once for all that it was handed before, and one more at a begin.
local function fit(target, had)
  if not (began[target] or missed[target]) then
    return
  end
  local fits, since = match(call('HGET', shard.META, 'fits:' .. target) or '', '^(%d+):(%d+)$')
  if missed[target] and missed[target] > tonumber(since or -1) then
    fits, since = math.max(math.floor((tonumber(fits) or had) / 2), FEWEST), shard.NOW_TEXT
  elseif began[target] and fits then
    fits = fits + 1
  else
    return
  end
  call('HSET', shard.META, 'fits:' .. target, values.text_of(fits) .. ':' .. since)
end

-- Counts the places that are free again. It follows a script's first write.
function places.give_places()
  if not next(freed) then
    return
  end
  places.write_busy()
  values.in_pieces('ZREM', shard.WAITING, left)
  for target, count in pairs(freed) do
    local out = call('HINCRBY', shard.META, 'out:' .. target, -count)
    fit(target, out + count)
    if out <= 0 then
      call('HDEL', shard.META, 'out:' .. target)
    end
    local most = tonumber(call('HGET', shard.META, 'most:' .. target) or nil)
    if most and not shard.WAKE and places.has_room(most, out) and places.waiting_for(target, 1)[1] then
      call('HSET', shard.META, 'wake', '1')
      shard.WAKE, shard.woken = '1', true
    end
  end
  freed, left, began, missed = {}, {}, {}, {}
end
