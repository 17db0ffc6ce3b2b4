-- What an add does where its id stands already, within add.lua's scope.
--
-- KEYS    as in prelude.lua
-- ARGV    add.lua's
-- RETURNS the function that reads a record, and the one that adds over it: (stored id, the place of its task in ARGV, record,
--         opened record) -> reply, record

local function put_in_place(sid, at, old, how, due, deadline, created, over)
  leave_group(sid, old.rest)
  call('ZREM', DONE, sid)
  call('ZREM', DEAD, sid)
  return put(sid, at, how, due, deadline, created, over)
end

local function created_over(sid, at, old, how)
  local due, deadline = due_and_deadline(at)
  return put_in_place(sid, at, old, how, due, deadline, NOW, how > 0 and function(data)
    local r = open(data)
    inherit(r, old)
    return close(r)
  end)
end

-- A replacement for a task that runs waits beside it until the lease ends.
local function put_successor(sid, at, old)
  local due, deadline = due_and_deadline(at)
  if has_successor(old) then
    drop_successor(sid, old)
  end
  old.flags = old.flags + SUCCESSOR
  call('HINCRBY', META, 'successors', 1)
  fence = fence + 1
  local data = fresh_record(came(REPLACED - 1, at), due, NOW, fence, deadline, ARGV[at + 6])
  call('HSET', TASKS, sid, close(old), sid .. '+', data)
  join_group(sid, ARGV[at + 6])
  return data
end

-- Whether a record came of this task of this call, or of a later one with the same id in its batch.
local function came_of(rest, mine)
  return string.sub(rest, 1, 6) == string.sub(mine, 1, 6)
    and unpack_struct('>I2', rest, 7) >= unpack_struct('>I2', mine, 7)
end

-- The answer to a call that is sent again because its reply was lost.
local function resent(sid, at, old, data)
  local mine = ARGV[at + 6]
  local waiting = has_successor(old) and call('HGET', TASKS, sid .. '+')
  local successor = open(waiting)
  if successor and came_of(successor.rest, mine) then
    return REPLACED, waiting
  end
  if came_of(old.rest, mine) then
    return math.floor(old.flags / 4) % 4 + 1, data
  end
end

local PAST_DEADLINE = -11

-- Debouncing pushes a task back, never before the due time it had nor past its longest wait.
local function debounce(sid, at, old)
  local due, deadline = due_and_deadline(at)
  local latest = old.created + tonumber(ARGV[at + 4])
  local pushed = math.max(old.due, math.min(due, latest))
  if string.byte(ARGV[at + 3]) == 43 then -- a relative deadline counts from the due time that came of it
    deadline = deadline - due + pushed
  elseif deadline > 0 and deadline <= pushed then
    return PAST_DEADLINE, ''
  end
  return DEBOUNCED, put_in_place(sid, at, old, DEBOUNCED - 1, pushed, deadline, old.created, function(data)
    local r = open(data)
    debounced(r, old, by_of(r.rest))
    return close(r)
  end)
end

local REFUSALS = { [SCHEDULED] = -2, [LEASE] = -3, [DIED] = -6 }

return open, function(sid, at, data, old)
  local mode = ARGV[at + 1]
  local reply, record = resent(sid, at, old, data)
  if reply then
    return reply, record
  elseif string.byte(mode) == APART then
    return KEPT, data
  end
  local live = old.status == SCHEDULED or old.status == LEASE
  if old.status == FINISHED or old.status == CANCELLED then
    return CREATED, created_over(sid, at, old, CREATED - 1)
  elseif mode == 'k' and live then
    return KEPT, data
  elseif mode == 'j' or (old.status == DIED and mode ~= 'r') then
    return REFUSALS[old.status], ''
  elseif old.status == LEASE then
    return REPLACED, put_successor(sid, at, old)
  elseif mode == 'd' then
    return debounce(sid, at, old)
  end
  return REPLACED, created_over(sid, at, old, REPLACED - 1)
end
