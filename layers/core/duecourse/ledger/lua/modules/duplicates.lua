-- What an add does where its id is taken, or a quota is set.
--
-- ARGV    add.lua's

-- A record as it stands there, opened. It is here so that an add of new ids makes no module of records.
function duplicates.open(data)
  return record.open(data)
end

local PAST_DEADLINE, CHANGED = -11, -19
local CALL_SIZE = fields.ORIGIN_SIZE - 2 -- without the place

local function put_in_place(sid, at, old, due, data)
  record.leave_group(sid, old.rest)
  call('ZREM', shard.DONE, sid)
  call('ZREM', shard.DEAD, sid)
  record.drop_body(sid, old) -- last: what is rejected before leaves the old task its payload
  return batch.put(sid, at, due, data)
end

local function created_over(sid, at, old, how)
  local due, deadline = batch.due_and_deadline(at)
  local data = batch.new_record(at, how, due, deadline, shard.NOW)
  if how > 0 then
    local r = record.open(data)
    history.inherit(r, old)
    data = record.close(r)
    if old.status == fields.DIED then
      record.note_occurrence(sid, r.flags, fields.SCHEDULED)
    end
  end
  return put_in_place(sid, at, old, due, data)
end

-- A replacement for a task that runs waits beside it until the lease ends.
local function put_successor(sid, at, old)
  local due, deadline = batch.due_and_deadline(at)
  if record.has_successor(old) then
    history.drop_successor(sid, old)
  end
  old.flags = old.flags + fields.SUCCESSOR
  call('HINCRBY', shard.META, 'successors', 1)
  local data = batch.new_record(at, batch.REPLACED - 1, due, deadline, shard.NOW)
  call('HSET', shard.TASKS, sid, record.close(old), sid .. '+', data)
  record.join_group(sid, ARGV[at + 6])
  return data
end

-- Whether a record came of this task of this call, or of a later one with the same id in its batch.
local function came_of(rest, mine)
  local call_of, place = unpack_struct(fields.ORIGIN_FORMAT, rest)
  local mine_of, least = unpack_struct(fields.ORIGIN_FORMAT, mine)
  return call_of == mine_of and place >= least
end

-- The answer to a call that is sent again because its reply was lost.
local function resent(sid, at, old, data)
  local mine = ARGV[at + 6]
  local waiting = record.has_successor(old) and call('HGET', shard.TASKS, sid .. '+')
  local successor = record.open(waiting)
  if successor and came_of(successor.rest, mine) then
    return batch.REPLACED, waiting
  end
  if came_of(old.rest, mine) then
    return math.floor(old.flags / fields.CAME) % 4 + 1, data
  end
end

-- Debouncing pushes a task back, never before the due time it had nor past its longest wait.
local function debounce(sid, at, old)
  local due, deadline = batch.due_and_deadline(at)
  local latest = old.created + tonumber(ARGV[at + 4])
  local pushed = math.max(old.due, math.min(due, latest))
  if byte(ARGV[at + 3]) == 43 then -- a relative deadline counts from the due time that came of it
    deadline = deadline - due + pushed
  elseif deadline > 0 and deadline <= pushed then
    return PAST_DEADLINE, ''
  end
  local r = record.open(batch.new_record(at, batch.DEBOUNCED - 1, pushed, deadline, old.created))
  history.debounced(r, old, history.by_of(r.rest))
  return batch.DEBOUNCED, put_in_place(sid, at, old, pushed, record.close(r))
end

-- What there is of the record of the task at this place.
local function coming(at)
  return { flags = 0, rest = ARGV[at + 6] }
end

-- How many counted bytes an add gives up whose id stands there: none where it waits beside what runs.
local function given_up(sid, old)
  local stays = not old or old.status == fields.LEASE or old.flags % tenant_bytes.TWICE == 0
  return stays and 0 or tenant_bytes.size_of(sid, old)
end

-- What a quota answers to the add at this place, nil where there is room; `old` is the record that stands there.
function duplicates.refusal(sid, at, old)
  if not shard.QUOTAS then
    return nil
  end
  shard.COUNTED = tenant_bytes.counts(sid) and fields.COUNTED or 0
  if ARGV[shard.FIRST + 2] ~= '' then -- of what is added as one, all was asked for together
    return nil
  end
  batch.flush() -- what this batch has added before counts
  local live = old and (old.status == fields.SCHEDULED or old.status == fields.LEASE)
  local size = tenant_bytes.size_of(sid, coming(at))
  return quotas.refusal(tenants.tenant_of(sid), live and 0 or 1, size - given_up(sid, old), 1, 1, size)
end

-- The same for all tasks from this place on, which are added as one, where none of those that stand there is pending.
function duplicates.refusal_of_all(first, item, olds)
  local bytes, size, count = 0, 0, 0
  for at = first, #ARGV, item do
    count = count + 1
    local one = tenant_bytes.size_of(ARGV[at], coming(at))
    bytes, size = bytes + one - given_up(ARGV[at], olds[count]), size + one
  end
  return quotas.refusal(tenants.tenant_of(ARGV[first]), count, bytes, count, count, size)
end

-- Counts the payload of what was added at this place, where a quota has let it in.
function duplicates.count_bytes(sid, at, reply)
  if shard.COUNTED > 0 and reply > 0 then
    tenant_bytes.count(sid, coming(at), 1)
  end
  shard.COUNTED = 0
end

-- Whether a task was debounced since an instant.
local function was_debounced(r, since)
  local _, _, _, log = record.split(r.rest)
  for letter, _, at in record.entries(log) do
    if letter == fields.DID_DEBOUNCED and at >= since then
      return true
    end
  end
end

-- Whether a record took the place of one that this request added, by its log.
local function follows_own(r, mine)
  local mark, _, _, _, log = '\0' .. sub(mine, 1, CALL_SIZE), record.split(r.rest)
  for letter, body in record.entries(log) do
    local is_add = letter == fields.DID_ADDED or letter == fields.DID_REPLACED
    if is_add and sub(body, -fields.ORIGIN_SIZE - 1, -3) == mark then
      return true
    end
  end
end

-- The reply and the record where a request that is sent again has added before, or may have. What stands there took the
-- place of its task, or came after its first try began. It is not to be undone.
local function done_before(sid, at, old, data, since)
  local waiting = record.has_successor(old) and call('HGET', shard.TASKS, sid .. '+')
  local successor = record.open(waiting)
  if follows_own(old, ARGV[at + 6]) then
    return batch.KEPT, successor and waiting or data
  end
  local stands = successor and successor.created >= since and waiting or old.created >= since and data
  if not stands and was_debounced(old, since) then
    stands = data
  end
  if stands and ARGV[at + 1] == 'j' then -- of which nobody knows whether it came before this one's or in its stead
    return CHANGED, ''
  end
  return stands and batch.KEPT, stands
end

-- Answers the reply and the record, and of what a quota rejects the wait; `old` is the opened `data`, which stands
-- there.
function duplicates.add(sid, at, data, old)
  local mode = ARGV[at + 1]
  local reply, stands = resent(sid, at, old, data)
  if reply then
    return reply, stands
  elseif byte(mode) == batch.APART then
    return batch.KEPT, data
  end
  local since = ARGV[shard.FIRST + 2] == '' and tonumber(ARGV[shard.FIRST + 3]) or 0
  if since > 0 then
    reply, stands = done_before(sid, at, old, data, since)
    if reply then
      return reply, stands
    end
  end
  local live = old.status == fields.SCHEDULED or old.status == fields.LEASE
  local is_free = old.status == fields.FINISHED or old.status == fields.CANCELLED
  if mode == 'k' and live then
    return batch.KEPT, data
  elseif not is_free and (mode == 'j' or (old.status == fields.DIED and mode ~= 'r')) then
    return record.refusal(old), ''
  end
  local refused, wait = duplicates.refusal(sid, at, old)
  if refused then
    return refused, '', wait
  elseif is_free then
    return batch.CREATED, created_over(sid, at, old, batch.CREATED - 1)
  elseif old.status == fields.LEASE then
    return batch.REPLACED, put_successor(sid, at, old)
  elseif mode == 'd' then
    return debounce(sid, at, old)
  end
  return batch.REPLACED, created_over(sid, at, old, batch.REPLACED - 1)
end
