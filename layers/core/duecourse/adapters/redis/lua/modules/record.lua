-- What the scripts that read records share, after layout.lua: records opened and closed, their logs; groups.

local layout = require 'layout'
local shard = require 'shard'
local tenants = require 'tenants'
local values = require 'values'

local call = redis.call
local pack, unpack_struct = struct.pack, struct.unpack

-- Redis serves nobody while a script runs: one that has read records of so many bytes (`shard.weight`) stops where it
-- may. A script that reads without opening adds to them.
local BYTES = 2000000

-- How many records to read next, where so many were read before: few until it is known that they are small.
local function piece(read)
  if read == 0 then
    return 8
  end
  return shard.weight < read * 8192 and 32 or 4
end

local BEGUN_FORMAT, BEGUN_SIZE = '>I4I6c8I6B', 26
local TOKEN_SIZE = 14
local BEGUN = 76 -- L
local HANDED = 86 -- V
local WORKED = 87 -- W
local TOKEN_FROM = -22 -- within that, from the record's end
local TOKEN_TO = -9
local OVER, OVER_FORMAT, OVER_SIZE = 68, '>I4I6', 11 -- D
local DONE_ = 68 -- D, as they stand in the log
local RELEASED = 66 -- B, as they stand in the log
local UNDELIVERED = 86 -- V, as they stand in the log
local SUCCESSOR = 2
local SMALLEST = 86 -- bytes
local PUT_OFF = 60000 -- how long what cannot be read is left alone
local LOG_LENGTH, LOG_BYTES = 20, 6000 -- as domain/history.py
local NOTHING_FORGOTTEN = '\0\0'
local MOST_LATE = 4294967295 -- ms, what 4 bytes hold

local LENGTHS = '>BBBI2I4' -- of by, kind, group, notify and payload

-- Where each of them ends in a rest.
local function ends_of(rest)
  local by, kind, group, notify, payload = unpack_struct(LENGTHS, rest, 22)
  by = 30 + by
  kind = by + kind
  group = kind + group
  notify = group + notify
  return by, kind, group, notify, notify + payload
end

-- Whether all parts of a rest are there, and nothing else. Raises an error where it is cut off within its tail.
local function is_whole(rest, entries)
  local _, _, _, _, at = ends_of(rest)
  if #rest > at then
    at = at + 2 + unpack_struct('>I2', rest, at + 1)
    at = at + 6 + unpack_struct('>I4', rest, at + 1)
  end
  for _ = 1, entries do
    at = at + 10 + unpack_struct('>I2', rest, at + 9)
  end
  return #rest == at
end

-- The rest up to its tail, then the tail's state, result, and log with what was forgotten of it.
local function split(rest)
  local _, _, _, _, body_end = ends_of(rest)
  if #rest == body_end then
    return rest, '', '', NOTHING_FORGOTTEN
  end
  local state_end = body_end + 2 + unpack_struct('>I2', rest, body_end + 1)
  local result_end = state_end + 4 + unpack_struct('>I4', rest, state_end + 1)
  return string.sub(rest, 1, body_end), string.sub(rest, body_end + 3, state_end),
    string.sub(rest, state_end + 5, result_end), string.sub(rest, result_end + 1)
end

local function join(body, state, result, log)
  if #state + #result == 0 and #log == 2 then
    return body
  end
  return body .. (state == '' and '\0\0' or pack('>I2', #state)) .. state
    .. (result == '' and '\0\0\0\0' or pack('>I4', #result)) .. result .. log
end

-- Takes off the log's last entry where it has this letter; answers how many it stands for and its body.
local function take_last(r, log, letter)
  local at, last = 3, nil
  while at <= #log do
    last, at = at, at + 10 + unpack_struct('>I2', log, at + 8)
  end
  if not last or string.byte(log, last) ~= letter then
    return log, 0
  end
  r.count = r.count - 1
  return string.sub(log, 1, last - 1), string.byte(log, last + 7), string.sub(log, last + 10)
end

-- The log with one entry more, within its bounds.
local function grown(r, log, letter, at, times, body)
  log = log .. pack('>BI6BI2', letter, at, times, #body) .. body
  r.count = r.count + 1
  while r.count > LOG_LENGTH or #log - 2 > LOG_BYTES do
    local gone, length = unpack_struct('>I2', log), unpack_struct('>I2', log, 11)
    log = pack('>I2', math.min(gone + 1, 65535)) .. string.sub(log, 13 + length)
    r.count = r.count - 1
  end
  return log
end

-- Ends a run in the record's log, at `at`; nil leaves the state or the result as it is. Leases that are given back one
-- after the other are one entry, the last.
local function remember(r, outcome, detail, state, result, at)
  local body, old_state, old_result, log = split(r.rest)
  local times = 0
  if outcome == RELEASED or outcome == UNDELIVERED then
    log, times = take_last(r, log, outcome)
  end
  local late = r.claimed > 0 and math.min(math.max(r.claimed - r.due, 0), MOST_LATE) or 0
  local run = pack('>I4I6I6BI4', r.run, r.fence, r.claimed, r.claimed > 0 and r.door or 0, late) .. detail
  r.detail = detail
  log = grown(r, log, outcome, at or shard.NOW, math.min(times + 1, 255), run)
  r.rest = join(body, state or old_state, result or old_result, log)
end

-- Whether another version of this code wrote a record: it may be whole, and is left as it is for those who know it.
local function is_foreign(data)
  local version = string.byte(data)
  return version and version ~= layout.VERSION and version < 32
end

-- Whether a later one did.
local function is_newer(data)
  return is_foreign(data) and string.byte(data) > layout.VERSION
end

-- How many entries with this letter the log ends in, as one.
local function times_in_a_row(r, letter)
  local _, _, _, log = split(r.rest)
  local count = r.count
  local _, times = take_last(r, log, letter)
  r.count = count
  return times
end

-- A record with nothing behind it.
local function open_bare(data)
  if #data < SMALLEST then
    return nil
  end
  local status = string.byte(data, -1)
  local version, flags, last, count, door, run, attempt, due, created, generation, deadline, claimed, fence,
    nonce = unpack_struct(layout.FRONT, data)
  local rest = string.sub(data, layout.FRONT_SIZE + 1, -2)
  local ran, whole = pcall(is_whole, rest, count)
  if version ~= layout.VERSION or not string.find('sldxc', string.char(status), 1, true) or not ran or not whole then
    return nil
  end
  return { -- in one, for a table that grows field by field is made anew four times
    status = status, flags = flags, last = last, count = count, door = door, run = run, attempt = attempt, due = due,
    created = created, generation = generation, deadline = deadline, claimed = claimed, fence = fence, nonce = nonce,
    rest = rest,
  }
end

-- A record, with the lease behind it folded in, as a claim leaves it, and the end behind that, as a settle does. Nil
-- where there is none, and where it cannot be read: written by another version, or broken.
local function open(data)
  if not data or #data < SMALLEST then
    return nil
  end
  shard.weight = shard.weight + #data
  local result, ended
  if string.byte(data, -1) == OVER then
    local length
    length, ended = unpack_struct(OVER_FORMAT, data, #data - OVER_SIZE + 1)
    data, result = string.sub(data, 1, -length - OVER_SIZE - 1), string.sub(data, -length - OVER_SIZE, -OVER_SIZE - 1)
  end
  local letter, bare, target, delivery = string.byte(data, -1), #data, nil, nil
  local begun = letter == BEGUN or letter == WORKED or letter == HANDED
  if begun then
    bare = bare - BEGUN_SIZE
    if letter == HANDED then
      bare = bare - 1 - (string.byte(data, bare) or 0)
      target = string.sub(data, math.max(bare, 0) + 1, -BEGUN_SIZE - 2)
    elseif letter == WORKED then
      bare = bare - TOKEN_SIZE
      delivery = string.sub(data, math.max(bare, 0) + 1, -BEGUN_SIZE - 1)
    end
  end
  local r = open_bare(string.sub(data, 1, math.max(bare, 0)))
  if not r or (begun and r.status ~= layout.SCHEDULED) or (ended and (not begun or target)) then
    return nil
  end
  if begun then
    r.status, r.target, r.delivery = layout.LEASE, target, delivery
    r.run, r.fence, r.nonce, r.claimed, r.door = unpack_struct(BEGUN_FORMAT, data, #data - BEGUN_SIZE + 1)
  end
  if ended then
    r.status, r.last = layout.FINISHED, DONE_
    remember(r, DONE_, '', nil, result, ended)
  end
  return r
end

-- A lease's token and whose it is, as it stands behind a record; "" of what was not handed over.
local function behind(r)
  local front = r.target and r.target .. string.char(#r.target) or r.delivery
  return front and front .. pack(BEGUN_FORMAT, r.run, r.fence, r.nonce, r.claimed, r.door)
    .. string.char(r.target and HANDED or WORKED) or ''
end

local function close(r)
  local handed = r.status == layout.LEASE and behind(r) or ''
  return pack(layout.FRONT, layout.VERSION, r.flags, r.last, r.count, r.door, r.run, r.attempt, r.due, r.created, r.generation,
    r.deadline, r.claimed, r.fence, r.nonce) .. r.rest
    .. string.char(handed == '' and r.status or layout.SCHEDULED) .. handed
end

local function has_successor(r)
  return bit.band(r.flags, SUCCESSOR) ~= 0
end

local function group_of(rest)
  local _, kind_end, group_end = ends_of(rest)
  return string.sub(rest, kind_end + 1, group_end)
end

-- A follow-up tells of another task's end: it is of that one's group for the sake of its shard alone.
local function is_follow_up(sid)
  return string.find(sid, '~', 1, true)
end

-- Where a scheduled task stands among what its tenant has due. A follow-up that is due already comes before all that is
-- none, beside those that wait: the end that it tells of is over, and a backlog may take hours.
local function due_score(sid, due)
  if due > shard.NOW or not is_follow_up(sid) then
    return values.text_of(due)
  end
  local first = call('ZRANGE', shard.DUE[tenants.tenant_of(sid)], '0', '0', 'WITHSCORES')
  local at = math.min(tonumber(first[2]) or due, due)
  return values.text_of(at < due and is_follow_up(first[1]) and at or math.max(at - 1, 0))
end

local function join_group(sid, rest)
  local group = group_of(rest)
  if group ~= '' and not is_follow_up(sid) then
    call('ZADD', shard.GROUPS, 0, layout.group_member(sid, group))
  end
end

local function leave_group(sid, rest)
  local group = group_of(rest)
  if group ~= '' then
    call('ZREM', shard.GROUPS, layout.group_member(sid, group))
  end
end

return {
  BYTES = BYTES,
  BEGUN = BEGUN,
  HANDED = HANDED,
  WORKED = WORKED,
  TOKEN_FROM = TOKEN_FROM,
  TOKEN_TO = TOKEN_TO,
  DONE_ = DONE_,
  RELEASED = RELEASED,
  UNDELIVERED = UNDELIVERED,
  SUCCESSOR = SUCCESSOR,
  SMALLEST = SMALLEST,
  PUT_OFF = PUT_OFF,
  LENGTHS = LENGTHS,
  piece = piece,
  ends_of = ends_of,
  split = split,
  join = join,
  take_last = take_last,
  grown = grown,
  remember = remember,
  is_foreign = is_foreign,
  is_newer = is_newer,
  times_in_a_row = times_in_a_row,
  open = open,
  close = close,
  has_successor = has_successor,
  group_of = group_of,
  is_follow_up = is_follow_up,
  due_score = due_score,
  join_group = join_group,
  leave_group = leave_group,
}
