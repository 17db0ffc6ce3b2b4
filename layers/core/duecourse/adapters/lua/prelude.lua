-- What every script begins with: the names of its keys, the time, the packed record, the indexes, the bell.
--
-- KEYS    1 tasks   hash, stored id -> packed record (its layout: adapters/record.py); "<stored id>+" is a successor
--         2 heads   zset, tenant -> its earliest due time, of tenants that are not in the ring
--         3 ring    zset, tenant with ripe work -> its turn
--         4 leased  zset, stored id -> end of the lease
--         5 done    zset, stored id -> when it was done or cancelled
--         6 dead    zset, stored id -> when it died
--         7 groups  zset, all scores 0, "<tenant>/<group>\0<stored id>"
--         8 meta    hash: fence, running:<tenant> while any is, paused, clock and bell_at (travel), shards: how many the
--                   queue has where that is or was not 1, or "<from>><to>#<who>" while they are changed
--         9 bell    string with a TTL: the instant at which it goes
--         10...     due:<tenant> zset, stored id -> due_at, for each tenant in ARGV
-- ARGV    1 the clock's override, "" for the server's   2 the head channel   3 how many shards the queue has   4 n
--         5..4+n tenants   then the verb's own
-- RETURNS a negative number alone: -8 the shard is not registered, -9 an override where the clock does not travel,
--         -10 the queue has another number of shards

local TASKS, HEADS, RING, LEASED, DONE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local DEAD, GROUPS, META, BELL = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
local TRAVEL = ARGV[1] ~= ''
local DEADMAN = 1000
local COUNT = ARGV[3]
local FIRST = 5 + tonumber(ARGV[4])

local DUE = {}
for i = 5, FIRST - 1 do
  DUE[ARGV[i]] = KEYS[i + 5]
end

if (call('HGET', META, 'shards') or COUNT) ~= COUNT then
  return -10
end

-- Time is the server's; it moves while a script runs, so it is read once.
local NOW
if TRAVEL then
  if call('HGET', META, 'clock') ~= 'travel' then
    return -9
  end
  NOW = tonumber(ARGV[1])
else
  local time = call('TIME')
  NOW = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The packed record. -------------------------------------------------------------------------------------------------

local FRONT = '>BBBBBBI4I2I6I6I6I6I6I6c8'
local VERSION = 2
local NO_NONCE = string.rep('\0', 8)
local SCHEDULED, LEASE, FINISHED, DIED, CANCELLED = 115, 108, 100, 120, 99 -- s l d x c
local SUCCESSOR = 2
local PUT_OFF = 60000 -- how long what cannot be read is left alone

-- Nil where there is no record, and where it cannot be read: written by a later version, or broken.
local function open(data)
  if not data or #data < 84 then
    return nil
  end
  local r = {}
  local version
  version, r.status, r.flags, r.last, r.count, r.door, r.run, r.attempt, r.due, r.created, r.generation, r.deadline, r.claimed,
    r.fence, r.nonce = unpack_struct(FRONT, data)
  if version ~= VERSION then
    return nil
  end
  r.rest = string.sub(data, 57)
  return r
end

local function close(r)
  return pack(FRONT, VERSION, r.status, r.flags, r.last, r.count, r.door, r.run, r.attempt, r.due, r.created,
    r.generation, r.deadline, r.claimed, r.fence, r.nonce) .. r.rest
end

local function has_successor(r)
  return bit.band(r.flags, SUCCESSOR) ~= 0
end

-- The front of a record that is scheduled and never ran; `came` says how (0 created, 2 replaced, 3 debounced).
local function fresh_front(came, due, created, generation, deadline)
  return pack(FRONT, VERSION, SCHEDULED, came * 4, 0, 0, 0, 0, 1, due, created, generation, deadline, 0, 0, NO_NONCE)
end

-- Where the lengths of kind, group and notify stand in a rest.
local function places_of(rest)
  local kind_at = 27 + string.byte(rest, 26)
  local group_at = kind_at + 1 + string.byte(rest, kind_at)
  return kind_at, group_at, group_at + 1 + string.byte(rest, group_at)
end

local function group_of(rest)
  local _, group_at, notify_at = places_of(rest)
  return string.sub(rest, group_at + 1, notify_at - 1)
end

-- A follow-up tells of another task's end: it is of that one's group for the sake of its shard alone.
local function is_follow_up(sid)
  return string.find(sid, '~', 1, true)
end

-- The indexes. -------------------------------------------------------------------------------------------------------

local function tenant_of(sid)
  return string.match(sid, '^[^/]*')
end

local function next_fence(n)
  return call('HINCRBY', META, 'fence', n or 1)
end

local function group_member(sid, group)
  return tenant_of(sid) .. '/' .. group .. '\0' .. sid
end

local function join_group(sid, rest)
  local group = group_of(rest)
  if group ~= '' and not is_follow_up(sid) then
    call('ZADD', GROUPS, 0, group_member(sid, group))
  end
end

local function leave_group(sid, rest)
  local group = group_of(rest)
  if group ~= '' then
    call('ZREM', GROUPS, group_member(sid, group))
  end
end

-- A tenant's place after its due set changed: in the ring while it is ripe and has a turn there, else among the heads.
local function rehead(tenant)
  local at = tonumber(call('ZRANGE', DUE[tenant], 0, 0, 'WITHSCORES')[2])
  if call('ZSCORE', RING, tenant) then
    if at and at <= NOW then
      return
    end
    call('ZREM', RING, tenant)
  end
  if at then
    call('ZADD', HEADS, at, tenant)
  else
    call('ZREM', HEADS, tenant)
  end
end

local function last_turn()
  return tonumber(call('ZRANGE', RING, -1, -1, 'WITHSCORES')[2]) or 0
end

-- Runs a command over many arguments, in pieces that Lua's stack holds.
local function in_pieces(command, key, args)
  for i = 1, #args, 4000 do
    call(command, key, unpack(args, i, math.min(i + 3999, #args)))
  end
end

local function push(list, a, b)
  local n = #list
  list[n + 1] = a
  list[n + 2] = b
end

-- An instant in ARGV: "+<ms>" counts from `from`, else epoch milliseconds.
local function instant(text, from)
  if string.byte(text, 1) == 43 then
    return from + tonumber(string.sub(text, 2))
  end
  return tonumber(text)
end

-- The bell. ----------------------------------------------------------------------------------------------------------

-- The earliest instant at which a claim could change something, nil for never. A paused queue contributes its leases.
local function earliest()
  local at = tonumber(call('ZRANGE', LEASED, 0, 0, 'WITHSCORES')[2])
  if call('HGET', META, 'paused') then
    return at
  end
  local front = call('ZRANGE', RING, 0, 0)[1]
  if front and DUE[front] then
    rehead(front) -- after a step of the clock what was ripe may not be
    front = call('ZRANGE', RING, 0, 0)[1]
  end
  local head = front and NOW or tonumber(call('ZRANGE', HEADS, 0, 0, 'WITHSCORES')[2])
  return at and head and math.min(at, head) or at or head
end

local function bell_hung()
  if TRAVEL then
    return tonumber(call('HGET', META, 'bell_at') or nil)
  end
  -- Time moves inside a script and expiry does not: a bell that is still here has yet to ring, though its time is past.
  local value = call('GET', BELL)
  return value and math.max(tonumber(value), NOW)
end

-- It begins with a ZREM, which runs where memory is short, and so does then what follows it.
local function set_bell(at)
  call('ZREM', LEASED, '')
  if TRAVEL then
    call('HSET', META, 'bell_at', at)
  elseif at > 0 then
    call('SET', BELL, at, 'PXAT', at)
  else
    call('DEL', BELL)
  end
  call('PUBLISH', ARGV[2], at)
end

-- Ends every script: the bell hangs at the earliest instant. What is due already was rung for, so it gets a deadman a
-- second off, unless this script made it due (`fresh`): then at once, which is never before now + 1, for a key that is
-- set into the past would vanish without an event.
local function hang(fresh)
  local at, hung = earliest() or 0, bell_hung() or 0
  if at > 0 and at <= NOW then
    if fresh then
      at = NOW + 1
    elseif hung >= NOW and hung <= NOW + DEADMAN then
      at = hung
    else
      at = NOW + DEADMAN
    end
  end
  if at ~= hung then
    set_bell(at)
  end
  return at
end
