-- What the scripts that change tasks share: what a record's log tells of callers, and successors.

-- The endings that are answered again.
local RUNS = {
  [fields.RAN_DONE] = true, [fields.RAN_AGAIN] = true, [fields.RAN_RETRY] = true, [fields.RAN_DROP] = true,
}

function history.set_state(r, state)
  local body, _, result, log = record.split(r.rest)
  r.rest = record.join(body, state, result, log)
end

-- Notes what a caller did; `again` in place of the last entry, where that is of the same action.
function history.note(r, action, by, due_before, due, at, again)
  local body, state, result, log = record.split(r.rest)
  local times, last = 0, nil
  if action == fields.DID_DEBOUNCED or again then
    log, times, last = record.take_last(r, log, action)
  end
  if times > 0 then
    due_before, times = unpack_struct('>I6', last), again and 0 or times
  end
  local change = pack(fields.CHANGE_FORMAT, due_before, due) .. by
  log = record.grown(r, log, action, at or shard.NOW, math.min(times + 1, 255), change)
  r.rest = record.join(body, state, result, log)
end

-- Which ending the run under this fence had, by the record's log.
function history.remembered(r, fence)
  local _, _, _, log = record.split(r.rest)
  for letter, body in record.entries(log) do
    if RUNS[letter] and unpack_struct('>I6', body, fields.RUN_FENCE) == fence then
      return letter
    end
  end
end

function history.by_of(rest)
  return sub(rest, fields.REST_SIZE + 1, (record.ends_of(rest)))
end

-- What replaces an occurrence of a schedule is that occurrence.
local function take_log(fresh, old)
  local body, state, result = record.split(fresh.rest)
  local _, _, _, log = record.split(old.rest)
  fresh.count, fresh.rest = old.count, record.join(body, state, result, log)
  fresh.flags = bit.bor(fresh.flags, bit.band(old.flags, fields.OCCURRENCE))
end

-- A fresh record goes on with the log of the one that it replaces, and what that one came of is noted there.
function history.inherit(fresh, old)
  take_log(fresh, old)
  local came = math.floor(old.flags / fields.CAME) % 4 -- 0 created, 2 replaced, 3 debounced
  local action = came == 2 and fields.DID_REPLACED or fields.DID_ADDED
  history.note(fresh, action, history.by_of(old.rest), 0, old.due, old.created)
end

-- A debounced record goes on with the log too, and has come of what the old one came of.
function history.debounced(fresh, old, by)
  local theirs = history.by_of(old.rest)
  fresh.rest = sub(fresh.rest, 1, fields.LENGTHS_AT - 1) .. string.char(#theirs)
    .. sub(fresh.rest, fields.LENGTHS_AT + 1, fields.REST_SIZE) .. theirs
    .. sub(fresh.rest, record.ends_of(fresh.rest) + 1)
  take_log(fresh, old)
  history.note(fresh, fields.DID_DEBOUNCED, by, old.due, fresh.due)
end

-- Successors: what replaces a task that runs waits beside it until its lease ends. ------------------------------------

-- The successor's record, which stands beside the other no more; nil where it cannot be read.
local function take_successor(sid, r)
  local s = record.open(call('HGET', shard.TASKS, sid .. '+'))
  call('HDEL', shard.TASKS, sid .. '+')
  if call('HINCRBY', shard.META, 'successors', -1) <= 0 then
    call('HDEL', shard.META, 'successors')
  end
  r.flags = r.flags - fields.SUCCESSOR
  return s
end

-- The successor's record in the place of the one whose lease ended. It keeps the token, so that a repeated settle is
-- answered as before. Nil where it cannot be read: then the other stays.
function history.succeed(sid, r)
  local s = take_successor(sid, r)
  if not s then
    return nil
  end
  if record.group_of(s.rest) ~= record.group_of(r.rest) then
    record.leave_group(sid, r.rest)
  end
  history.inherit(s, r)
  record.drop_body(sid, r)
  s.fence, s.nonce, s.last, s.trigger = r.fence, r.nonce, r.last, r.trigger
  return s
end

function history.drop_successor(sid, r)
  local s = take_successor(sid, r)
  if s then
    record.drop_body(sid, s)
  end
  if s and record.group_of(s.rest) ~= record.group_of(r.rest) then
    record.leave_group(sid, s.rest)
    record.join_group(sid, r.rest)
  end
end
