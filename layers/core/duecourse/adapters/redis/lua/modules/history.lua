-- What the scripts that change tasks share: what a record's log tells of callers, and successors.

local record = require 'record'
local shard = require 'shard'

local call = redis.call
local pack, unpack_struct = struct.pack, struct.unpack

local ADDED = 78 -- N
local REPLACED_ = 85 -- U
local DEBOUNCED_ = 79 -- O
local MOVED = 77 -- M
local REPLAYED = 80 -- P
local CANCELLED_ = 75 -- K
local TAKEN = 84 -- T
local RUNS = { [68] = true, [65] = true, [82] = true, [88] = true } -- the endings that are answered again

local function set_state(r, state)
  local body, _, result, log = record.split(r.rest)
  r.rest = record.join(body, state, result, log)
end

-- Notes what a caller did; `again` in place of the last entry, where that is of the same deed.
local function note(r, deed, by, due_before, due, at, again)
  local body, state, result, log = record.split(r.rest)
  local times, last = 0, nil
  if deed == DEBOUNCED_ or again then
    log, times, last = record.take_last(r, log, deed)
  end
  if times > 0 then
    due_before, times = unpack_struct('>I6', last), again and 0 or times
  end
  local change = pack('>I6I6', due_before, due) .. by
  r.rest = record.join(body, state, result, record.grown(r, log, deed, at or shard.NOW, math.min(times + 1, 255), change))
end

-- Which ending the run under this fence had, by the record's log.
local function remembered(r, fence)
  local _, _, _, log = record.split(r.rest)
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
  return string.sub(rest, 31, (record.ends_of(rest)))
end

local function take_log(fresh, old)
  local body, state, result = record.split(fresh.rest)
  local _, _, _, log = record.split(old.rest)
  fresh.count, fresh.rest = old.count, record.join(body, state, result, log)
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
    .. string.sub(fresh.rest, record.ends_of(fresh.rest) + 1)
  take_log(fresh, old)
  note(fresh, DEBOUNCED_, by, old.due, fresh.due)
end

-- Successors: what replaces a task that runs waits beside it until its lease ends. ------------------------------------

-- The successor's record, which stands beside the other no more; nil where it cannot be read.
local function take_successor(sid, r)
  local s = record.open(call('HGET', shard.TASKS, sid .. '+'))
  call('HDEL', shard.TASKS, sid .. '+')
  call('HINCRBY', shard.META, 'successors', -1)
  r.flags = r.flags - record.SUCCESSOR
  return s
end

-- The successor's record in the place of the one whose lease ended. It keeps the token, so that a repeated settle is
-- answered as before. Nil where it cannot be read: then the other stays.
local function succeed(sid, r)
  local s = take_successor(sid, r)
  if not s then
    return nil
  end
  if record.group_of(s.rest) ~= record.group_of(r.rest) then
    record.leave_group(sid, r.rest)
  end
  inherit(s, r)
  s.fence, s.nonce, s.last, s.door = r.fence, r.nonce, r.last, r.door
  return s
end

local function drop_successor(sid, r)
  local s = take_successor(sid, r)
  if s and record.group_of(s.rest) ~= record.group_of(r.rest) then
    record.leave_group(sid, s.rest)
    record.join_group(sid, r.rest)
  end
end

return {
  ADDED = ADDED,
  REPLACED_ = REPLACED_,
  DEBOUNCED_ = DEBOUNCED_,
  MOVED = MOVED,
  REPLAYED = REPLAYED,
  CANCELLED_ = CANCELLED_,
  TAKEN = TAKEN,
  set_state = set_state,
  note = note,
  remembered = remembered,
  by_of = by_of,
  inherit = inherit,
  debounced = debounced,
  succeed = succeed,
  drop_successor = drop_successor,
}
