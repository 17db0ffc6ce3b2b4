-- Places at targets: each task that is handed over and not begun has one, and due tasks wait for them.

local TENTH = 10 -- of the places: so many must be free before it rings for what waits, so that few hand-overs take many
local WHOLE = 10 -- tasks of a whole event, where its target has time for so many: MAX_TASKS of running/hand_over.py

local LOOKED_AT = 500 -- of what waits, in one sweep
local MOST_TARGETS = 64 -- as stats.lua
local MOST_WANTED = 64 -- fewer than the tenants that one sweep declares

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

-- What names a due task that waits for a place, until it is looked at again.
function places.waiting_member(target, due, aside, sid)
  return string.format('%s\0%013d%013d\0', target, due, aside) .. sid
end

-- The targets that tasks wait for.
function places.waited_for()
  local names, from = {}, '[\1' -- before it are deliveries, not what waits
  for i = 1, MOST_TARGETS do
    local member = call('ZRANGEBYLEX', shard.WAITING, from, '+', 'LIMIT', '0', '1')[1]
    if not member then
      break
    end
    names[i] = match(member, '^%Z*')
    from = '(' .. names[i] .. '\1'
  end
  return names
end

-- Whether a task that is due then was put aside until another time, for its target has no room.
function places.is_aside(sid, due, aside)
  for _, target in ipairs(places.waited_for()) do
    if call('ZSCORE', shard.WAITING, places.waiting_member(target, due, aside, sid)) then
      return true
    end
  end
  return false
end

-- How many tasks are a whole event of a target that may have `most`, and has time for `each` of one, nil for any. It is
-- no more than half of them: a lost event keeps its places until its lease ends, and what waits goes on by the others.
function places.event_of(most, each)
  return math.max(1, math.min(math.floor(most / 2), each or WHOLE))
end

-- Whether what waits is to be handed over. An invocation takes as long for one task as for ten that run at the same
-- time, so a busy target gets whole events.
function places.has_room(most, out, each)
  return most - out >= math.max(places.event_of(most, each), math.floor(most / TENTH))
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
    local known = not shard.WAKE and call('HMGET', shard.META, 'most:' .. target, 'each:' .. target)
    if known and known[1] and places.has_room(known[1] + 0, out, tonumber(known[2] or nil))
      and places.waiting_for(target, 1)[1] then
      call('HSET', shard.META, 'wake', '1')
      shard.WAKE, shard.woken = '1', true
    end
  end
  freed, left = {}, {}
end

-- Those of some entries that wait no more: the task ended, was moved, replaced or taken since it was put aside.
local function strays_among(members, count)
  local strays, targets = {}, {}
  for i = 1, count do
    local target, aside, sid = match(members[i], '^(%Z+)%z%d+(%d%d%d%d%d%d%d%d%d%d%d%d%d)%z(.*)$')
    local at = sid and call('ZSCORE', shard.DUE[tenants.tenant_of(sid)], sid)
    if not at or tonumber(at) ~= tonumber(aside) then
      strays[#strays + 1], targets[target or ''] = members[i], true
    end
  end
  return strays, targets
end

-- How many entries come before the first of a tenant whose due set is not among KEYS. Such tenants it adds to `want`.
local function count_known(members, want)
  local known, wanted = #members, {}
  for i, member in ipairs(members) do
    local tenant = tenants.tenant_of(match(member, '^%Z+%z%d+%z(.*)$') or '')
    if tenant ~= '' and not shard.DUE[tenant] then
      known = math.min(known, i - 1)
      if not wanted[tenant] and #want < MOST_WANTED then
        wanted[tenant], want[#want + 1] = true, tenant
      end
    end
  end
  return known
end

-- Forgets a target for which nothing waits, and that a claim is to hand over what waits, where nothing does.
local function forget_targets(targets)
  for target in pairs(targets) do
    if not places.waiting_for(target, '1')[1] then
      call('HDEL', shard.META, 'most:' .. target)
    end
  end
  if call('ZLEXCOUNT', shard.WAITING, '[\1', '+') == 0 then
    call('HDEL', shard.META, 'wake')
    shard.WAKE = nil
  end
end

-- A bounded step through the entries of what waits for a place, after `from`, the last of the step before: forgets
-- those that wait no more. Whatever takes a task out of its due set leaves its entry to this. Answers whether there may
-- be more of such.
function places.forget_strays(from, want)
  local members = call('ZRANGEBYLEX', shard.WAITING, from and '(' .. from or '[\1', '+', 'LIMIT', '0', LOOKED_AT)
  if #members == 0 and not from then
    return false
  end
  local known = count_known(members, want)
  local strays, targets = strays_among(members, known)
  local ends = known == #members and known < LOOKED_AT
  call('ZREM', shard.LEASED, '') -- this may be a script's first write, and memory short
  if ends then
    call('HDEL', shard.META, 'waiting')
  elseif known > 0 then
    call('HSET', shard.META, 'waiting', members[known])
  end
  values.in_pieces('ZREM', shard.WAITING, strays)
  if #strays > 0 then
    forget_targets(targets)
  end
  return #strays > 0 and not ends
end
