-- What every script begins with: the names of its keys, the time, the indexes, the bell.
--
-- KEYS    1 tasks   hash, stored id -> packed record (its layout: adapters/redis/record.py); "<stored id>+" is a successor
--         2 heads   zset, tenant -> its earliest due time, of tenants that are neither in the ring nor parked
--         3 ring    zset, tenant with ripe work -> its turn
--         4 leased  zset, stored id -> end of the lease
--         5 done    zset, stored id -> when it was done or cancelled
--         6 dead    zset, stored id -> when it died
--         7 groups  zset, all scores 0, "<tenant>/<group>\0<stored id>"
--         8 meta    hash: fence, running:<tenant> while any is, clock and bell_at (travel), successors: how many wait,
--                   logged: the sum of `log`, late_slot: the newest in `late`; shards: how many the queue has where that
--                   is or was not 1, or "<from>><to>#<who>" while they are changed; how the whole queue is set, where it
--                   is: paused, max_running, rate_count, rate_per (ms), tenant_max_running, priority, retention, lease (ms);
--                   defaulted where max_running is a default; dead_swept: when a sweep first looked for old dead tasks;
--                   idle: "<fence>:<since>" of a shard without tasks or settings, leaving where it is being forgotten;
--                   out:<target> how many were handed over and are not begun, while any is; most:<target> how many
--                   may be, while tasks wait for that; wake: 1 while a claim may hand over what waits
--         9 bell    string with a TTL: the instant at which it goes
--         10 parked zset, tenant that runs as many tasks as it may -> its earliest due time
--         11 log    zset, "<first fence>:<how many>" of each claim within the rate's window -> claimed_at
--         12 late   hash, "<slot>:<bucket>" -> how many were claimed that late (domain/lateness.py)
--         13 waiting zset, all scores 0, "<target>\0<due, 13 digits><until when it is put aside, 13 digits>\0<stored id>" of
--                   due tasks whose target has as many as it may that it has not begun; and "\0<stored id>\0<target>" of
--                   those that it has not begun, for a record that is cut off does not tell whose place it has
--         14...     due:<tenant> zset, stored id -> due_at (of a follow-up, `due_score`), of each tenant that the verb is about
-- ARGV    1 the clock's override, "" for the server's   2 the head channel   3 how many shards the queue has
--         then the verb's own
-- RETURNS a negative number alone: -8 the shard is not registered, -9 an override where the clock does not travel,
--         -10 the queue has another number of shards

--exports TASKS HEADS RING LEASED DONE DEAD GROUPS META PARKED LOG LATE call COUNT FIRST DUE TENANT PAUSED LEAVING MAX_RUNNING
--exports TENANT_MAX RATE PER LOGGED read_meta NOW text_of NOW_TEXT tenant_of next_fence rehead last_turn in_pieces
--exports push instant full opens_at WAS_FULL woken WAITING WAKE place_of free_place free_lost_place waiting_for has_room
--exports give_places earliest bell_hung hang

TASKS, HEADS, RING, LEASED, DONE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
DEAD, GROUPS, META = KEYS[6], KEYS[7], KEYS[8]
local BELL = KEYS[9]
PARKED, LOG, LATE, WAITING = KEYS[10], KEYS[11], KEYS[12], KEYS[13]
call = redis.call
local TRAVEL = ARGV[1] ~= ''
local DEADMAN = 1000
COUNT = ARGV[3]
FIRST = 4

DUE = {} -- tenant -> its due set; TENANT is the last of them
do
  local name_at = #TASKS - #'tasks' + #'due:' + 1
  for i = 14, #KEYS do
    TENANT = string.sub(KEYS[i], name_at)
    DUE[TENANT] = KEYS[i]
  end
end

local SHARDS, CLOCK

-- This shard's part of a limit of the queue: one more for the first ones where it does not divide.
local function part_of(whole)
  whole = tonumber(whole)
  local count = tonumber(COUNT) or 1
  if count == 1 then
    return whole
  end
  local number = tonumber(string.match(KEYS[1], '/(%d+)}:tasks$'))
  return math.floor(whole / count) + (number < whole % count and 1 or 0)
end

function read_meta()
  local meta = call('HMGET', META, 'shards', 'clock', 'paused', 'max_running', 'tenant_max_running', 'rate_count',
    'rate_per', 'logged', 'leaving', 'wake')
  SHARDS, CLOCK, PAUSED = meta[1], meta[2], meta[3]
  MAX_RUNNING, TENANT_MAX = meta[4] and part_of(meta[4]), meta[5] and part_of(meta[5])
  LEAVING = meta[9]
  RATE, PER, LOGGED = meta[6] and part_of(meta[6]), tonumber(meta[7] or 0), tonumber(meta[8] or 0)
  WAKE = meta[10]
end

read_meta()
if (SHARDS or COUNT) ~= COUNT then
  return -10
end

-- Time is the server's; it moves while a script runs, so it is read once.
if TRAVEL then
  if CLOCK ~= 'travel' then
    return -9
  end
  NOW = tonumber(ARGV[1])
else
  local time = call('TIME')
  NOW = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A whole number as a command takes it: Redis makes text of each that it is given, in two to four times the time.
function text_of(number)
  return string.format('%d', number)
end

NOW_TEXT = text_of(NOW)

-- The indexes. -------------------------------------------------------------------------------------------------------

local match = string.match -- here alone, for this is called for every task

function tenant_of(sid)
  return match(sid, '^[^/]*')
end

function next_fence(n)
  return call('HINCRBY', META, 'fence', n or 1)
end

-- A tenant's place after its due set changed: in the ring while it is ripe and has a turn there, parked while it is,
-- else among the heads.
function rehead(tenant)
  local at = call('ZRANGE', DUE[tenant], '0', '0', 'WITHSCORES')[2]
  if call('ZSCORE', RING, tenant) then
    if at and tonumber(at) <= NOW then
      return
    end
    call('ZREM', RING, tenant)
  end
  local place = TENANT_MAX and call('ZSCORE', PARKED, tenant) and PARKED or HEADS
  if at then
    call('ZADD', place, at, tenant)
  else
    call('ZREM', place, tenant)
  end
end

function last_turn()
  return tonumber(call('ZRANGE', RING, '-1', '-1', 'WITHSCORES')[2]) or 0
end

-- Runs a command over many arguments, in pieces that Lua's stack holds.
function in_pieces(command, key, args)
  for i = 1, #args, 4000 do
    call(command, key, unpack(args, i, math.min(i + 3999, #args)))
  end
end

function push(list, a, b)
  local n = #list
  list[n + 1] = a
  list[n + 2] = b
end

-- An instant in ARGV: "+<ms>" counts from `from`, else epoch milliseconds.
function instant(text, from)
  if string.byte(text, 1) == 43 then
    return from + tonumber(string.sub(text, 2))
  end
  return tonumber(text)
end

-- What holds the shard back. -----------------------------------------------------------------------------------------

-- Whether it runs as many tasks as it may.
function full()
  return MAX_RUNNING and call('ZCARD', LEASED) >= MAX_RUNNING
end

local LOOK_AHEAD = 32 -- entries of the log

-- When the rate next lets a task be claimed, 0 where it does.
function opens_at()
  if not RATE or LOGGED < RATE then
    return 0
  end
  local over, at = LOGGED - RATE + 1, 0
  local entries = call('ZRANGE', LOG, 0, LOOK_AHEAD - 1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    at, over = entries[i + 1] + PER, over - string.match(entries[i], '%d+$')
    if over <= 0 then
      break
    end
  end
  return at
end

WAS_FULL = full()
woken = false -- whether a tenant was that waited for a place of its own

-- Hand-overs. --------------------------------------------------------------------------------------------------------

local freed, left = {}, {} -- target -> how many places its tasks have left, and what named those in the index
local TENTH = 10 -- of the places: so many must be free before it rings for what waits, so that few hand-overs take many

-- What names a delivery's place in the index, before all that waits there.
function place_of(sid, target)
  return '\0' .. sid .. '\0' .. target
end

function free_place(sid, target)
  freed[target] = (freed[target] or 0) + 1
  left[#left + 1] = place_of(sid, target)
end

-- The same for a leased task whose record cannot be read, where it has such a place.
function free_lost_place(sid)
  local from = place_of(sid, '')
  local member = call('ZRANGEBYLEX', WAITING, '[' .. from, '(\0' .. sid .. '\1', 'LIMIT', '0', '1')[1]
  if member then
    free_place(sid, string.sub(member, #from + 1))
  end
end

-- What waits for a place at a target, the longest due first.
function waiting_for(target, count)
  return call('ZRANGEBYLEX', WAITING, '[' .. target .. '\0', '(' .. target .. '\1', 'LIMIT', '0', count)
end

function has_room(most, out)
  return out <= most - math.max(1, math.floor(most / TENTH))
end

-- Counts the places that are free again. It follows a script's first write.
function give_places()
  in_pieces('ZREM', WAITING, left)
  for target, count in pairs(freed) do
    local out = call('HINCRBY', META, 'out:' .. target, -count)
    if out <= 0 then
      call('HDEL', META, 'out:' .. target)
    end
    local most = tonumber(call('HGET', META, 'most:' .. target) or nil)
    if most and not WAKE and has_room(most, out) and waiting_for(target, 1)[1] then
      call('HSET', META, 'wake', '1')
      WAKE, woken = '1', true
    end
  end
  freed, left = {}, {}
end

-- The bell. ----------------------------------------------------------------------------------------------------------

-- The earliest instant at which a claim could change something, nil for never. Of a queue that is paused or full those
-- are its leases.
function earliest()
  local at = tonumber(call('ZRANGE', LEASED, '0', '0', 'WITHSCORES')[2])
  if PAUSED or full() then
    return at
  end
  local front = call('ZRANGE', RING, '0', '0')[1]
  if front and DUE[front] then
    rehead(front) -- after a step of the clock what was ripe may not be
    front = call('ZRANGE', RING, '0', '0')[1]
  end
  local head = (front or WAKE) and NOW or tonumber(call('ZRANGE', HEADS, '0', '0', 'WITHSCORES')[2])
  head = head and math.max(head, opens_at(), 1) -- 0 would be none
  return at and head and math.min(at, head) or at or head
end

function bell_hung()
  if TRAVEL then
    return tonumber(call('HGET', META, 'bell_at') or nil)
  end
  -- Time moves inside a script and expiry does not: a bell that is still here has yet to ring, though its time is past.
  local value = call('GET', BELL)
  return value and math.max(tonumber(value), NOW)
end

-- It begins with a ZREM, which runs where memory is short, and so does then what follows it.
local function set_bell(at)
  local text = text_of(at)
  call('ZREM', LEASED, '')
  if TRAVEL then
    call('HSET', META, 'bell_at', text)
  elseif at > 0 then
    call('SET', BELL, text, 'PXAT', text)
  else
    call('DEL', BELL)
  end
  call('PUBLISH', ARGV[2], text)
end

-- Ends every script: the bell hangs at the earliest instant. What is due already was rung for, so it gets a deadman a
-- second off, unless this script made it due (`fresh`) or gave back the place that it waited for: then at once, which is
-- never before now + 1, for a key that is set into the past would vanish without an event.
function hang(fresh)
  if next(freed) then
    give_places()
  end
  local at, hung = earliest() or 0, bell_hung() or 0
  fresh = fresh or woken or (WAS_FULL and not full())
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
