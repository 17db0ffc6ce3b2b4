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
local function take_log(new, old)
  local body, state, result = record.split(new.rest)
  local _, _, _, log = record.split(old.rest)
  new.count, new.rest = old.count, record.join(body, state, result, log)
  new.flags = bit.bor(new.flags, bit.band(old.flags, fields.OCCURRENCE))
end

-- A new record goes on with the log of the one that it replaces, and what that one came of is noted there.
function history.inherit(new, old)
  take_log(new, old)
  local came = math.floor(old.flags / fields.CAME) % 4 -- 0 created, 2 replaced, 3 debounced
  local action = came == 2 and fields.DID_REPLACED or fields.DID_ADDED
  local origin, mark = sub(old.rest, 1, fields.ORIGIN_SIZE), ''
  local _, place = unpack_struct(fields.ORIGIN_FORMAT, origin)
  if place >= fields.KEYED then -- by which its request knows, sent again, that it has added
    mark = '\0' .. origin
  end
  history.note(new, action, history.by_of(old.rest) .. mark, 0, old.due, old.created)
end

-- A debounced record goes on with the log too, and has come of what the old one came of.
function history.debounced(new, old, by)
  local theirs = history.by_of(old.rest)
  new.rest = sub(new.rest, 1, fields.LENGTHS_AT - 1) .. string.char(#theirs)
    .. sub(new.rest, fields.LENGTHS_AT + 1, fields.REST_SIZE) .. theirs
    .. sub(new.rest, record.ends_of(new.rest) + 1)
  take_log(new, old)
  history.note(new, fields.DID_DEBOUNCED, by, old.due, new.due)
end

-- Successors: what replaces a task that runs waits beside it until its lease ends. ------------------------------------

-- The record that an id comes to in the end: the successor's, where one waits, else its own.
function history.newest_of(sid, r)
  local waiting = record.has_successor(r) and call('HGET', shard.TASKS, sid .. '+')
  return record.open(waiting) or r
end

-- True if a caller has moved, debounced or replayed a task after an instant.
function history.changed_since(r, instant)
  local _, _, _, log = record.split(r.rest)
  for letter, _, at in record.entries(log) do
    if at > instant and (letter == fields.DID_MOVED or letter == fields.DID_DEBOUNCED or letter == fields.DID_REPLAYED) then
      return true
    end
  end
  return false
end

-- True if a task is of the version that a caller saw ("<generation> <due>", "" for any).
function history.is_as_seen(sid, r, seen)
  if seen == '' then
    return true
  end
  local generation, due = match(seen, '^(%d+) (%d+)$')
  local newest = history.newest_of(sid, r)
  return newest.generation == tonumber(generation) and newest.due == tonumber(due)
end

-- The successor's record; nil where it cannot be read. It is written as it is: a script that may not write ends here,
-- with the successor still there.
local function read_successor(sid, r)
  local data = call('HGET', shard.TASKS, sid .. '+')
  call('HSET', shard.TASKS, sid .. '+', data or '')
  r.flags = r.flags - fields.SUCCESSOR
  return record.open(data)
end

-- Comes last before the record is written in whose place it is.
local function forget_successor(sid)
  if call('HINCRBY', shard.META, 'successors', -1) <= 0 then
    call('HDEL', shard.META, 'successors')
  end
  call('HDEL', shard.TASKS, sid .. '+')
end

-- The successor's record in the place of the one whose lease ended. It keeps the token, so that a repeated settle is
-- answered as before. Nil where it cannot be read: then the other stays.
function history.succeed(sid, r)
  local s = read_successor(sid, r)
  if not s then
    forget_successor(sid)
    return nil
  end
  if record.group_of(s.rest) ~= record.group_of(r.rest) then
    record.leave_group(sid, r.rest)
  end
  history.inherit(s, r)
  record.drop_body(sid, r)
  forget_successor(sid)
  s.fence, s.nonce, s.last, s.trigger = r.fence, r.nonce, r.last, r.trigger
  return s
end

function history.drop_successor(sid, r)
  local s = read_successor(sid, r)
  if s and record.group_of(s.rest) ~= record.group_of(r.rest) then
    record.leave_group(sid, s.rest)
    record.join_group(sid, r.rest)
  end
  if s then
    record.drop_body(sid, s)
  end
  forget_successor(sid)
end
