-- What the scripts that read records share, after layout.lua: records opened and closed, their logs; groups.

-- Redis serves nobody while a script runs: one that has read records of so many bytes (`shard.weight`) stops where it
-- may. A script that reads without opening adds to them.
local BYTES = 2000000

-- How many records to read next, where so many were read before: few until it is known that they are small.
function record.piece(read)
  if read == 0 then
    return 8
  end
  return shard.weight < read * 8192 and 32 or 4
end

-- What `act` answers for each item in ARGV, `size` arguments from `first` on: for as many as those bytes allow, for all
-- where they are one step.
function record.each(first, size, whole, act)
  local answers = {}
  for at = first, #ARGV, size do
    if shard.weight >= BYTES and not whole then
      break
    end
    answers[#answers + 1] = act(ARGV[at], at)
  end
  return answers
end

local SCHEDULE = 42 -- *, with which a schedule's stored id begins
local PUT_OFF = 60000 -- how long what cannot be read is left alone
local LOG_LENGTH, LOG_BYTES = 20, 6000 -- as ledger/task.py
local NOTHING_FORGOTTEN = '\0\0'
local MOST_LATE = 4294967295 -- ms, what 4 bytes hold

-- Where by, kind, group, notify and payload end in a rest.
function record.ends_of(rest)
  local by, kind, group, notify, payload = unpack_struct(fields.LENGTHS_FORMAT, rest, fields.LENGTHS_AT)
  by = fields.REST_SIZE + by
  kind = by + kind
  group = kind + group
  notify = group + notify
  return by, kind, group, notify, notify + payload
end

-- Whether all parts of a rest are there, and nothing else. Raises an error where it is cut off within its tail.
local function is_whole(rest, entries)
  local _, _, _, _, at = record.ends_of(rest)
  if #rest > at then
    at = at + 2 + unpack_struct('>I2', rest, at + 1)
    at = at + 6 + unpack_struct('>I4', rest, at + 1)
  end
  for _ = 1, entries do
    at = at + fields.ENTRY_SIZE + unpack_struct('>I2', rest, at + 1 + fields.ENTRY_LENGTH)
  end
  return #rest == at
end

-- The rest up to its tail, then the tail's state, result, and log with what was forgotten of it.
function record.split(rest)
  local _, _, _, _, body_end = record.ends_of(rest)
  if #rest == body_end then
    return rest, '', '', NOTHING_FORGOTTEN
  end
  local state_end = body_end + 2 + unpack_struct('>I2', rest, body_end + 1)
  local result_end = state_end + 4 + unpack_struct('>I4', rest, state_end + 1)
  return sub(rest, 1, body_end), sub(rest, body_end + 3, state_end),
    sub(rest, state_end + 5, result_end), sub(rest, result_end + 1)
end

function record.join(body, state, result, log)
  if #state + #result == 0 and #log == 2 then
    return body
  end
  return body .. (state == '' and '\0\0' or pack('>I2', #state)) .. state
    .. (result == '' and '\0\0\0\0' or pack('>I4', #result)) .. result .. log
end

-- Goes through a log, oldest first: letter, body and time of each entry.
function record.entries(log)
  local at = 3
  return function()
    if at <= #log then
      local letter, time, _, length = unpack_struct(fields.ENTRY_FORMAT, log, at)
      local from = at + fields.ENTRY_SIZE
      at = from + length
      return letter, sub(log, from, at - 1), time
    end
  end
end

local FAILURES = { -- as ledger/task.py
  [fields.RAN_RETRY] = true, [fields.RAN_DROP] = true, [fields.RAN_LAPSED] = true, [fields.RAN_EXPIRED] = true,
  [fields.RAN_UNDELIVERED] = true,
}

-- The error of the newest failed run, '' of what is done.
function record.error_of(r)
  local failed = ''
  if r.status ~= fields.FINISHED then
    local _, _, _, log = record.split(r.rest)
    for letter, body in record.entries(log) do
      failed = FAILURES[letter] and sub(body, fields.RUN_SIZE + 1) or failed
    end
  end
  return failed
end

-- Takes off the log's last entry where it has this letter; answers how many it stands for and its body.
function record.take_last(r, log, letter)
  local at, last = 3, nil
  while at <= #log do
    last, at = at, at + fields.ENTRY_SIZE + unpack_struct('>I2', log, at + fields.ENTRY_LENGTH)
  end
  if not last or byte(log, last) ~= letter then
    return log, 0
  end
  r.count = r.count - 1
  return sub(log, 1, last - 1), byte(log, last + fields.ENTRY_TIMES),
    sub(log, last + fields.ENTRY_SIZE)
end

-- The log with one entry more, within its bounds.
function record.grown(r, log, letter, at, times, body)
  log = log .. pack(fields.ENTRY_FORMAT, letter, at, times, #body) .. body
  r.count = r.count + 1
  while r.count > LOG_LENGTH or #log - 2 > LOG_BYTES do
    local gone, length = unpack_struct('>I2', log), unpack_struct('>I2', log, 3 + fields.ENTRY_LENGTH)
    log = pack('>I2', math.min(gone + 1, 65535)) .. sub(log, 3 + fields.ENTRY_SIZE + length)
    r.count = r.count - 1
  end
  return log
end

-- Ends a run in the record's log, at `at`; nil leaves the state or the result as it is. Leases that are given back one
-- after the other are one entry, the last.
function record.remember(r, outcome, detail, state, result, at)
  local body, old_state, old_result, log = record.split(r.rest)
  local times = 0
  if outcome == fields.RAN_RELEASE or outcome == fields.RAN_UNDELIVERED then
    log, times = record.take_last(r, log, outcome)
  end
  local late = r.claimed > 0 and math.min(math.max(r.claimed - r.due, 0), MOST_LATE) or 0
  local run = pack(fields.RUN_FORMAT, r.run, r.fence, r.claimed, r.claimed > 0 and r.trigger or 0, late) .. detail
  r.detail = detail
  log = record.grown(r, log, outcome, at or shard.NOW, math.min(times + 1, 255), run)
  r.rest = record.join(body, state or old_state, result or old_result, log)
end

-- Ends a task in the record's log, whose deadline has passed.
function record.remember_expired(r)
  record.remember(r, fields.RAN_EXPIRED, 'past its deadline')
end

-- How many entries with this letter the log ends in, as one.
function record.times_in_a_row(r, letter)
  local _, _, _, log = record.split(r.rest)
  local count = r.count
  local _, times = record.take_last(r, log, letter)
  r.count = count
  return times
end

local STATUSES = {
  [fields.SCHEDULED] = true, [fields.LEASE] = true, [fields.FINISHED] = true, [fields.DIED] = true,
  [fields.CANCELLED] = true,
}

-- A record with nothing behind it.
local function open_bare(data)
  if #data < fields.SMALLEST then
    return nil
  end
  local status = byte(data, -1)
  local version, flags, last, count, trigger, run, attempt, due, created, generation, deadline, claimed, fence,
    nonce = unpack_struct(fields.FRONT_FORMAT, data)
  local rest = sub(data, fields.FRONT_SIZE + 1, -2)
  local ran, whole = pcall(is_whole, rest, count)
  local known = version == fields.VERSION and STATUSES[status]
  if not known or not ran or not whole then
    return nil
  end
  return { -- in one, for a table that grows field by field is made anew four times
    status = status, flags = flags, last = last, count = count, trigger = trigger, run = run, attempt = attempt,
    due = due, created = created, generation = generation, deadline = deadline, claimed = claimed, fence = fence,
    nonce = nonce, rest = rest,
  }
end

-- A record, with the lease behind it folded in, as a claim leaves it, and the end behind that, as a settle does. Nil
-- where there is none, and where it cannot be read: written by another version, or broken.
function record.open(data)
  if not data or #data < fields.SMALLEST then
    return nil
  end
  shard.weight = shard.weight + #data
  local result, ended
  if byte(data, -1) == fields.ENDED then
    local length
    length, ended = unpack_struct(fields.ENDED_FORMAT, data, #data - fields.ENDED_SIZE + 1)
    result = sub(data, -length - fields.ENDED_SIZE, -fields.ENDED_SIZE - 1)
    data = sub(data, 1, -length - fields.ENDED_SIZE - 1)
  end
  local letter, bare, target, delivery = byte(data, -1), #data, nil, nil
  local begun = letter == fields.BEGUN or letter == fields.WORKED or letter == fields.HANDED
  if begun then
    bare = bare - fields.BEGUN_SIZE
    if letter == fields.HANDED then
      bare = bare - 1 - (byte(data, bare) or 0)
      target = sub(data, math.max(bare, 0) + 1, -fields.BEGUN_SIZE - 2)
    elseif letter == fields.WORKED then
      bare = bare - fields.TOKEN_SIZE
      delivery = sub(data, math.max(bare, 0) + 1, -fields.BEGUN_SIZE - 1)
    end
  end
  local r = open_bare(sub(data, 1, math.max(bare, 0)))
  if not r or (begun and r.status ~= fields.SCHEDULED) or (ended and (not begun or target)) then
    return nil
  end
  if begun then
    r.status, r.target, r.delivery = fields.LEASE, target, delivery
    local at = #data - fields.BEGUN_SIZE + 1
    r.run, r.fence, r.nonce, r.claimed, r.trigger = unpack_struct(fields.BEGUN_FORMAT, data, at)
    if r.trigger >= fields.AHEAD then -- whoever writes the record anew takes its run for begun
      r.trigger, r.ahead = r.trigger - fields.AHEAD, true
    end
  end
  if ended then
    r.status, r.last = fields.FINISHED, fields.RAN_DONE
    record.remember(r, fields.RAN_DONE, '', nil, result, ended)
  end
  return r
end

-- A lease's token and whose it is, as it stands behind a record; "" of what was not handed over.
local function behind(r)
  local front = r.target and r.target .. string.char(#r.target) or r.delivery
  local letter = r.target and fields.HANDED or fields.WORKED
  return front and front .. pack(fields.BEGUN_FORMAT, r.run, r.fence, r.nonce, r.claimed, r.trigger, letter) or ''
end

function record.close(r)
  local handed = r.status == fields.LEASE and behind(r) or ''
  return pack(fields.FRONT_FORMAT, fields.VERSION, r.flags, r.last, r.count, r.trigger, r.run, r.attempt, r.due,
    r.created, r.generation, r.deadline, r.claimed, r.fence, r.nonce) .. r.rest
    .. string.char(handed == '' and r.status or fields.SCHEDULED) .. handed
end

-- What a verb answers where a task is in none of the states that it takes.
function record.refusal(r)
  local codes = {
    [fields.SCHEDULED] = -2, [fields.LEASE] = -3, [fields.FINISHED] = -4, [fields.CANCELLED] = -5, [fields.DIED] = -6,
  }
  return codes[r.status]
end

function record.has_successor(r)
  return bit.band(r.flags, fields.SUCCESSOR) ~= 0
end

function record.kind_of(rest)
  local by_end, kind_end = record.ends_of(rest)
  return sub(rest, by_end + 1, kind_end)
end

function record.group_of(rest)
  local _, kind_end, group_end = record.ends_of(rest)
  return sub(rest, kind_end + 1, group_end)
end

-- What names a schedule in the index of groups, where it stands by its tenant.
local function schedule_member(sid)
  return layout.group_member(sid, match(sid, '^%*/([^/]*)'))
end

-- Puts a schedule into that index, where those of a tenant are counted (modules/quotas.lua); a pass of the sweep puts
-- all into it that were there before.
function record.join_schedules(sid)
  if match(shard.QUOTAS or '', 's') then
    call('ZADD', shard.GROUPS, '0', schedule_member(sid))
  end
end

-- What names a task in its group's index, of a record as it stands; nil where it is of no group, or cannot be read.
function record.member_of_group(sid, data)
  if byte(sid) == SCHEDULE then
    return schedule_member(sid)
  elseif #data < fields.SMALLEST or byte(data) ~= fields.VERSION then
    return nil
  end
  local by, kind, group = unpack_struct(fields.LENGTHS_FORMAT, data, fields.FRONT_SIZE + fields.LENGTHS_AT)
  local from = fields.FRONT_SIZE + fields.REST_SIZE + by + kind
  return group > 0 and layout.group_member(sid, sub(data, from + 1, from + group)) or nil
end

-- Deletes the payload of a record that gives its place to another.
function record.drop_body(sid, r)
  if r.flags % tenant_bytes.TWICE > 0 then
    tenant_bytes.count(sid, r, -1)
  end
  if r.flags >= fields.APART then
    bodies.drop({ (bodies.field_of(sid, r.rest)) })
  end
end

-- A notification is of the group of the task that ended for the sake of its shard alone, as a schedule is of its own.
function record.is_notification(sid)
  return string.find(sid, '~', 1, true)
end

-- Where a scheduled task stands among what its tenant has due. A notification that is due already comes before all that
-- is none, beside those that wait: the end that it tells of is over, and a backlog may take hours.
function record.due_score(sid, due)
  if due > shard.NOW or not record.is_notification(sid) then
    return values.text_of(due)
  end
  local first = call('ZRANGE', shard.DUE[tenants.tenant_of(sid)], '0', '0', 'WITHSCORES')
  local at = math.min(tonumber(first[2]) or due, due)
  return values.text_of(at < due and record.is_notification(first[1]) and at or math.max(at - 1, 0))
end

function record.join_group(sid, rest)
  local group = record.group_of(rest)
  if byte(sid) == SCHEDULE then
    record.join_schedules(sid)
  elseif group ~= '' and not record.is_notification(sid) then
    call('ZADD', shard.GROUPS, 0, layout.group_member(sid, group))
  end
end

function record.leave_group(sid, rest)
  local group = record.group_of(rest)
  if group ~= '' then
    call('ZREM', shard.GROUPS, layout.group_member(sid, group))
  end
end

-- Notes that an occurrence of a schedule has ended, or that one which had ended is scheduled again: the verb tells its
-- schedule (modules/progress.lua). `flags` are the record's.
function record.note_occurrence(sid, flags, status)
  if flags >= fields.OCCURRENCE and flags % (2 * fields.OCCURRENCE) >= fields.OCCURRENCE then
    shard.occurred = shard.occurred or {}
    values.push(shard.occurred, sid, status)
  end
end

-- Notes that a task has ended, where anybody waits: the verb publishes it (modules/waiters.lua).
function record.note_end(sid, flags, status)
  record.note_occurrence(sid, flags, status)
  if shard.AWAITED then
    shard.ended = shard.ended or {}
    values.push(shard.ended, shard.NOW, sid)
  end
end

-- Writes a record down, and where it belongs: among what is due, or what ended now. The record comes first: a script
-- that is rejected half way leaves the truth there (modules/misplaced.lua).
function record.put(sid, r)
  call('HSET', shard.TASKS, sid, record.close(r))
  if r.status == fields.SCHEDULED then
    call('ZADD', shard.DUE[tenants.tenant_of(sid)], record.due_score(sid, r.due), sid)
  else
    call('ZADD', r.status == fields.DIED and shard.DEAD or shard.DONE, shard.NOW, sid)
    record.note_end(sid, r.flags, r.status)
    if r.status == fields.DIED then
      shard.entries = shard.entries .. numbers.ONE_DEAD
    end
  end
end

-- Deletes what stands under an id, wherever but among the leased, with its payload and its place in its group.
function record.delete(sid, data)
  for _, place in ipairs({ shard.DUE[tenants.tenant_of(sid)], shard.DONE, shard.DEAD }) do
    call('ZREM', place, sid)
  end
  call('ZREM', shard.GROUPS, record.member_of_group(sid, data) or '')
  call('HDEL', shard.TASKS, sid)
  tenant_bytes.drop({ sid }, { data })
  bodies.drop({ (bodies.of(sid, data)) })
end
