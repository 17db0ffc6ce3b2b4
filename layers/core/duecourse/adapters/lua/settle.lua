-- Ends leases, each under its token and with an ending; the same token and ending again is answered as before.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's and ending's, then the heads of all leases in one, 23 bytes each: fence 6, nonce 8, ending 1 (D done,
--         A again, R retry, X drop, B release), 1 where due counts from now, due 6, 1 where it has details; the stored id
--         of each; the details of those that have any: state length 2 (65535 as it is), state, detail length 2, detail,
--         result
-- RETURNS {now, bell_at, {reply...}}; a reply is 1 done, 2 again, 3 retried, 4 dead, 5 released, 0 stale
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local SIZE, HEAD = 23, '>I6c8BBI6'
local KEPT = 65535 -- the length of a state that stays as it is
local HEADS_OF_ALL = ARGV[FIRST]
local count = #HEADS_OF_ALL / SIZE
local DONE_, AGAIN_, RETRY_, DROP_, RELEASE_ = 68, 65, 82, 88, 66
local REPLIES = { [DONE_] = 1, [AGAIN_] = 2, [RETRY_] = 3, [DROP_] = 4, [RELEASE_] = 5 }
local STALE, DEAD_ = 0, 4
local DIED_OF_IT = 32 -- makes an ending's letter in `last` a small one

local replies, ended, told = {}, {}, {}
local written, finished, died, scheduled, running = {}, {}, {}, {}, {}
local fresh = false

-- What comes with an ending: a new state or nil, a detail, a result.
local function details(text)
  if text == '' then
    return nil, '', ''
  end
  local length, state, at = unpack_struct('>I2', text), nil, 3
  if length ~= KEPT then
    state, at = string.sub(text, 3, 2 + length), 3 + length
  end
  length = unpack_struct('>I2', text, at)
  return state, string.sub(text, at + 2, at + 1 + length), string.sub(text, at + 2 + length)
end

-- What an ending does to the record; answers the reply.
local ENDINGS = {
  [DONE_] = function(r, _, _, _, result)
    remember(r, DONE_, '', nil, result)
    r.status = FINISHED
    return 1
  end,
  [AGAIN_] = function(r, due, state)
    if expired(r) then
      remember(r, AGAIN_, 'past its deadline', state)
      r.status = DIED
      return DEAD_
    end
    remember(r, AGAIN_, '', state)
    r.status, r.attempt, r.due = SCHEDULED, 1, due
    return 2
  end,
  [RETRY_] = function(r, due, state, detail)
    remember(r, RETRY_, detail, state)
    return retry_or_die(r, due) and 3 or DEAD_
  end,
  [DROP_] = function(r, _, _, detail)
    remember(r, DROP_, detail)
    r.status = DIED
    return DEAD_
  end,
  [RELEASE_] = function(r, due, _, detail)
    remember(r, RELEASE_, detail)
    r.status, r.due = SCHEDULED, due
    return 5
  end,
}

local function settled_before(r, fence, nonce, ending)
  if r.fence == fence and r.nonce == nonce then
    return r.last == ending and REPLIES[ending] or r.last == ending + DIED_OF_IT and DEAD_ or STALE
  end
  return remembered(r, fence) == ending and REPLIES[ending] or STALE
end

local function place(sid, r)
  local tenant = tenant_of(sid)
  if r.status == FINISHED then
    push(finished, NOW, sid)
  elseif r.status == DIED then
    push(died, NOW, sid)
  else
    scheduled[tenant] = scheduled[tenant] or {}
    push(scheduled[tenant], r.due, sid)
    fresh = fresh or r.due <= NOW
  end
  running[tenant] = (running[tenant] or 0) - 1
  push(written, sid, close(r))
end

local function settle(sid, at, text, r)
  local fence, nonce, ending, delayed, due = unpack_struct(HEAD, HEADS_OF_ALL, at)
  if r.status ~= LEASE or r.fence ~= fence or r.nonce ~= nonce then
    return settled_before(r, fence, nonce, ending)
  end
  local reply = ENDINGS[ending](r, delayed == 1 and NOW + due or due, details(text))
  r.last = reply == DEAD_ and ending + DIED_OF_IT or ending
  ended[#ended + 1] = { sid, r }
  if r.status ~= SCHEDULED then
    for _, one in ipairs(tell_of(sid, r)) do
      told[#told + 1] = one
    end
  end
  return reply
end

-- The record of a first run that is done, as `remember` and `close` would leave it, by slices: most ends are such, and
-- a table of the fields is half of what an end costs. Nil for any other end and any other record.
local AT_ONCE = '>' .. string.rep('x', 12) .. 'I6' .. string.rep('x', 18) .. 'I6' .. string.rep('x', 35) .. 'I4'
local NOW_TEXT, DONE_ENTRY = text_of(NOW), NOTHING_FORGOTTEN .. pack('>BI6BI2', DONE_, NOW, 1, 21)

local function done_at_once(data, at, text)
  if #data < 84 or string.byte(HEADS_OF_ALL, at + 14) ~= DONE_ then
    return nil
  end
  local token = string.sub(HEADS_OF_ALL, at, at + 13)
  local version, status, flags, _, entries = string.byte(data, 1, 5)
  if version ~= VERSION or status ~= LEASE or entries ~= 0 or bit.band(flags, SUCCESSOR) ~= 0
    or string.sub(data, 43, 56) ~= token then
    return nil
  end
  local due, claimed, size = unpack_struct(AT_ONCE, data)
  local kind_at = 83 + string.byte(data, 82)
  local group_at = kind_at + 1 + string.byte(data, kind_at)
  local notify_at = group_at + 1 + string.byte(data, group_at)
  local high, low = string.byte(data, notify_at, notify_at + 1)
  if #data ~= 81 + size or high + low > 0 then
    return nil
  end
  local _, _, result = details(text)
  local late = math.min(math.max(claimed - due, 0), 4294967295)
  return '\2d' .. string.sub(data, 3, 3) .. 'D\1' .. string.sub(data, 6) .. '\0\0' .. pack('>I4', #result) .. result
    .. DONE_ENTRY .. string.sub(data, 7, 10) .. string.sub(token, 1, 6) .. string.sub(data, 37, 42)
    .. string.sub(data, 6, 6) .. pack('>I4', late)
end

local standing = count > 0 and call('HMGET', TASKS, unpack(ARGV, FIRST + 1, FIRST + count)) or {}
local opened, changed, gone, detailed = {}, {}, {}, FIRST + count
for i = 1, count do
  local sid, at, text = ARGV[FIRST + i], (i - 1) * SIZE + 1, ''
  if string.byte(HEADS_OF_ALL, at + SIZE - 1) == 1 then
    detailed = detailed + 1
    text = ARGV[detailed]
  end
  local data = changed[sid] or standing[i] -- one may be there twice
  local done = data and not opened[sid] and done_at_once(data, at, text)
  if done then
    local tenant = tenant_of(sid)
    changed[sid], gone[#gone + 1], replies[i] = done, sid, 1
    push(finished, NOW_TEXT, sid)
    push(written, sid, done)
    running[tenant] = (running[tenant] or 0) - 1
  else
    opened[sid] = opened[sid] or open(data)
    replies[i] = opened[sid] and settle(sid, at, text, opened[sid]) or STALE
  end
end

for _, pair in ipairs(ended) do
  gone[#gone + 1] = pair[1]
end
if #gone > 0 then
  call('ZREM', LEASED, unpack(gone))
  for _, pair in ipairs(ended) do
    local sid, r = pair[1], pair[2]
    place(sid, has_successor(r) and succeed(sid, r) or r)
  end
  in_pieces('HSET', TASKS, written)
  in_pieces('ZADD', DONE, finished)
  in_pieces('ZADD', DEAD, died)
  count_all_running(running)
  for tenant, members in pairs(scheduled) do
    in_pieces('ZADD', DUE[tenant], members)
    rehead(tenant)
  end
  follow(told)
end
return { NOW, hang(fresh or followed), replies }
