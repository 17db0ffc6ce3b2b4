-- What the scripts that change tasks share: the record's tail and its log, and successors.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's
-- RETURNS nothing

local LOG_LENGTH, LOG_BYTES = 20, 6000 -- as domain/history.py
local NOTHING_FORGOTTEN = '\0\0'
local MOST_LATE = 4294967295 -- ms, what 4 bytes hold
local ADDED, REPLACED_, DEBOUNCED_, MOVED, REPLAYED, CANCELLED_ = 78, 85, 79, 77, 80, 75 -- N U O M P K
local RELEASED, TAKEN = 66, 84 -- B T
local RUNS = { [68] = true, [65] = true, [82] = true, [88] = true } -- the endings that are answered again

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

local function set_state(r, state)
  local body, _, result, log = split(r.rest)
  r.rest = join(body, state, result, log)
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

-- Ends a run in the record's log; nil leaves the state or the result as it is. Leases that are given back one after the
-- other are one entry, the last.
local function remember(r, outcome, detail, state, result)
  local body, old_state, old_result, log = split(r.rest)
  local times = 0
  if outcome == RELEASED then
    log, times = take_last(r, log, RELEASED)
  end
  local late = r.claimed > 0 and math.min(math.max(r.claimed - r.due, 0), MOST_LATE) or 0
  local run = pack('>I4I6I6BI4', r.run, r.fence, r.claimed, r.claimed > 0 and r.door or 0, late) .. detail
  r.detail = detail
  log = grown(r, log, outcome, NOW, math.min(times + 1, 255), run)
  r.rest = join(body, state or old_state, result or old_result, log)
end

-- Notes what a caller did.
local function note(r, deed, by, due_before, due, at)
  local body, state, result, log = split(r.rest)
  local times, last = 0, nil
  if deed == DEBOUNCED_ then
    log, times, last = take_last(r, log, deed)
  end
  if times > 0 then
    due_before = unpack_struct('>I6', last)
  end
  local change = pack('>I6I6', due_before, due) .. by
  r.rest = join(body, state, result, grown(r, log, deed, at or NOW, math.min(times + 1, 255), change))
end

-- Which ending the run under this fence had, by the record's log.
local function remembered(r, fence)
  local _, _, _, log = split(r.rest)
  local at = 3
  while at <= #log do
    local letter, length = string.byte(log, at), unpack_struct('>I2', log, at + 8)
    if RUNS[letter] and unpack_struct('>I6', log, at + 14) == fence then
      return letter
    end
    at = at + 10 + length
  end
end

local function by_of(rest)
  return string.sub(rest, 31, (ends_of(rest)))
end

local function take_log(fresh, old)
  local body, state, result = split(fresh.rest)
  local _, _, _, log = split(old.rest)
  fresh.count, fresh.rest = old.count, join(body, state, result, log)
end

-- A fresh record goes on with the log of the one that it replaces, and what that one came of is noted there.
local function inherit(fresh, old)
  take_log(fresh, old)
  local came = math.floor(old.flags / 4) % 4 -- 0 created, 2 replaced, 3 debounced
  note(fresh, came == 2 and REPLACED_ or ADDED, by_of(old.rest), 0, old.due, old.created)
end

-- A debounced record goes on with the log too, and has come of what the old one came of.
local function debounced(fresh, old, by)
  local theirs = by_of(old.rest)
  fresh.rest = string.sub(fresh.rest, 1, 21) .. string.char(#theirs) .. string.sub(fresh.rest, 23, 30) .. theirs
    .. string.sub(fresh.rest, ends_of(fresh.rest) + 1)
  take_log(fresh, old)
  note(fresh, DEBOUNCED_, by, old.due, fresh.due)
end

-- Successors: what replaces a task that runs waits beside it until its lease ends. ------------------------------------

-- The successor's record, which stands beside the other no more; nil where it cannot be read.
local function take_successor(sid, r)
  local s = open(call('HGET', TASKS, sid .. '+'))
  call('HDEL', TASKS, sid .. '+')
  call('HINCRBY', META, 'successors', -1)
  r.flags = r.flags - SUCCESSOR
  return s
end

-- The successor's record in the place of the one whose lease ended. It keeps the token, so that a repeated settle is
-- answered as before. Nil where it cannot be read: then the other stays.
local function succeed(sid, r)
  local s = take_successor(sid, r)
  if not s then
    return nil
  end
  if group_of(s.rest) ~= group_of(r.rest) then
    leave_group(sid, r.rest)
  end
  inherit(s, r)
  s.fence, s.nonce, s.last, s.door = r.fence, r.nonce, r.last, r.door
  return s
end

local function drop_successor(sid, r)
  local s = take_successor(sid, r)
  if s and group_of(s.rest) ~= group_of(r.rest) then
    leave_group(sid, s.rest)
    join_group(sid, r.rest)
  end
end
