-- Places at targets: each task that is handed over and not begun has one, and due tasks wait for them.

local TENTH = 10 -- of the places: so many must be free before it rings for what waits, so that few hand-overs take many

local freed, left -- target -> how many places its tasks have left, and what named those in the index

function places.begin()
  freed, left = {}, {}
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

-- Counts the places that are free again. It follows a script's first write.
function places.give_places()
  if not next(freed) then
    return
  end
  values.in_pieces('ZREM', shard.WAITING, left)
  for target, count in pairs(freed) do
    local out = call('HINCRBY', shard.META, 'out:' .. target, -count)
    if out <= 0 then
      call('HDEL', shard.META, 'out:' .. target)
    end
    local most = tonumber(call('HGET', shard.META, 'most:' .. target) or nil)
    if most and not shard.WAKE and places.has_room(most, out) and places.waiting_for(target, 1)[1] then
      call('HSET', shard.META, 'wake', '1')
      shard.WAKE, shard.woken = '1', true
    end
  end
  freed, left = {}, {}
end
