-- Puts a shard on record, unless its queue stands there with another number of shards.
--
-- KEYS    1 <namespace>:shards, a set of "<queue>/<number>/<count>"   2 the set of marks, "<member>#<who>", of those
--         that are leaving it, mostly none or one
--         3 hash: layout, the version of records that new shards have (adapters/redis/layout.py), and count:<queue> how
--         many shards a queue has, where that is not 1; counted: "all" once that is so of every queue, or how far it is;
--         makers: how far those are entered in 5
--         4 hash: "<tenant>/<queue>" -> when the tenant last added there (ms), of tenants whose queues are counted; of an
--         earlier version: queue -> "<tenant>/<member>", who made it and its first shard
--         5 zset, all scores 0: "<tenant>/<member>" of each, by which a tenant's are found
-- ARGV    1 the clock (modules/shard.lua)   2 queue   3 the shard's number   4 how many shards the queue has   5 1 to
--         write it though it stands there already: who waits for replicas waits for what its own connection wrote
--         6 the newest version of records   7 the tenant that adds to the queue   8 how many queues each tenant may use,
--         0 for any
-- RETURNS 1000 where a step was made through what an earlier version has noted, and this is to be asked again; 0 where
--         the tenant uses as many as it may; the version of records that new shards have, below 0; or how many shards
--         the queue has on record
--
-- The first shard of a ledger is of the newest version, and so are all that follow it. A ledger of before has shards
-- and tells no version: then new ones are of the oldest, which whoever added to it until now can read.

require 'clock'

local queue = ARGV[2] .. '/' -- which no queue's name has in it, nor anything that means more in a pattern
local member = queue .. ARGV[3] .. '/' .. ARGV[4]
local is_there = redis.call('SISMEMBER', KEYS[1], member) == 1
local is_first = redis.call('SCARD', KEYS[1]) == 0

local LOOKED_AT, AGAIN = 500, 1000

-- Notes the numbers of shards of a ledger of an earlier version: a bounded step. Answers whether it was the last.
local function has_counted()
  local cursor = redis.call('HGET', KEYS[3], 'counted')
  if cursor == 'all' then
    return true
  end
  local found = redis.call('SSCAN', KEYS[1], cursor or '0', 'COUNT', LOOKED_AT)
  for _, other in ipairs(found[2]) do
    local name, count = match(other, '^([^/]*)/%d+/(%d+)$') -- else it names no shard
    if name and count ~= '1' then
      redis.call('HSET', KEYS[3], 'count:' .. name, count)
    end
  end
  redis.call('HSET', KEYS[3], 'counted', found[1] == '0' and 'all' or found[1])
  return found[1] == '0'
end

local function is_on_record(other)
  return redis.call('SISMEMBER', KEYS[1], other) == 1
end

-- Whether the queue has any shard on record, of so many.
local function has_shard(count)
  for number = 0, count - 1 do
    if is_on_record(queue .. number .. '/' .. count) then
      return true
    end
  end
  return false
end

-- How many shards the queue has on record, where that is another number: 1, or what was noted.
local function other_count()
  if ARGV[4] ~= '1' and is_on_record(queue .. '0/1') then
    return 1
  end
  local noted = tonumber(redis.call('HGET', KEYS[3], 'count:' .. ARGV[2]) or nil)
  return noted and noted ~= tonumber(ARGV[4]) and has_shard(noted) and noted or nil
end

-- Enters queues that callers of an earlier version have noted among those of their tenants: a bounded step. Answers
-- whether it was the last.
local function has_entered()
  if redis.call('HLEN', KEYS[4]) <= redis.call('ZCARD', KEYS[5]) then
    return true
  end
  local found = redis.call('HSCAN', KEYS[4], redis.call('HGET', KEYS[3], 'makers') or '0', 'COUNT', LOOKED_AT)
  for i = 1, #found[2], 2 do
    if not match(found[2][i], '/') then
      redis.call('ZADD', KEYS[5], '0', found[2][i + 1])
      redis.call('HDEL', KEYS[4], found[2][i])
      redis.call('HSET', KEYS[4], match(found[2][i + 1], '^[^/]*/') .. found[2][i], '0')
    end
  end
  if found[1] == '0' then
    redis.call('HDEL', KEYS[3], 'makers')
  else
    redis.call('HSET', KEYS[3], 'makers', found[1])
  end
  return found[1] == '0'
end

-- The entries of a tenant whose names begin so.
local function entries_of(prefix, most)
  return redis.call('ZRANGEBYLEX', KEYS[5], '[' .. prefix .. '/', '(' .. prefix .. '0', 'LIMIT', '0', most)
end

-- Whether the tenant may use a queue more. Which others use says nothing here. A queue that is forgotten by now, or has
-- another number of shards since, counts no more.
local function may_use(tenant, most)
  local count = 0
  for _, entry in ipairs(entries_of(tenant, most + LOOKED_AT)) do
    if is_on_record(sub(entry, #tenant + 2)) then
      count = count + 1
    else
      redis.call('ZREM', KEYS[5], entry)
      redis.call('HDEL', KEYS[4], match(entry, '^[^/]*/[^/]*'))
    end
  end
  return count < most
end

if not is_there and not is_first and not has_counted() then
  return AGAIN
end
local other = not is_there and other_count()
if other then
  return other
end

if ARGV[8] ~= '0' then
  if not has_entered() then
    return AGAIN
  end
  local use = ARGV[7] .. '/' .. ARGV[2]
  local known = entries_of(use, 1)[1]
  local is_counted = known and is_on_record(sub(known, #ARGV[7] + 2))
  if not is_counted and not may_use(ARGV[7], tonumber(ARGV[8])) then
    return 0
  elseif not is_counted then
    redis.call('ZADD', KEYS[5], '0', ARGV[7] .. '/' .. member)
  end
  redis.call('HSET', KEYS[4], use, values.text_of(clock.NOW))
end

-- The marks of this member: mostly there are none at all.
local function marks()
  local found, cursor = {}, '0'
  repeat
    local step = redis.call('SSCAN', KEYS[2], cursor, 'MATCH', member .. '#*', 'COUNT', '1000')
    for _, one in ipairs(step[2]) do
      found[#found + 1] = one
    end
    cursor = step[1]
  until cursor == '0'
  return found
end

if ARGV[5] == '1' then
  redis.call('SREM', KEYS[1], member)
end
-- So that whoever is forgetting it lets it be. It comes first, also where there is no mark: what follows a SREM runs
-- where memory is short.
redis.call('SREM', KEYS[2], '')
for _, mark in ipairs(marks()) do -- a tick that was killed leaves its own behind
  redis.call('SREM', KEYS[2], mark)
end
if is_first then
  redis.call('HSET', KEYS[3], 'layout', ARGV[6], 'counted', 'all')
end
if ARGV[4] ~= '1' then
  redis.call('HSET', KEYS[3], 'count:' .. ARGV[2], ARGV[4])
end
redis.call('SADD', KEYS[1], member)
return -(redis.call('HGET', KEYS[3], 'layout') or fields.OLDEST)
