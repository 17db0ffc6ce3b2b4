-- Registers a shard, unless its queue is registered with another number of shards.
--
-- KEYS    1 <namespace>:shards, a set of "<queue>/<number>/<count>"   2 the set of marks, "<member>#<who>", of those
--         that are leaving it, mostly none or one
--         3 hash: layout, the version of the ledger's records (ledger/layout.py), and count:<queue> how many
--         shards a queue has, where that is not 1
--         4 hash: "<tenant>/<queue>" -> when the tenant last added there (ms), of tenants whose queues are counted
--         5 zset, all scores 0: "<tenant>/<member>" of each, by which a tenant's are found
-- ARGV    1 the clock (modules/shard.lua)   2 queue   3 the shard's number   4 how many shards the queue has   5 1 to
--         write it though it stands there already: who waits for replicas waits for what its own connection wrote
--         6 the tenant that adds to the queue   7 how many queues each tenant may use, 0 for any
-- RETURNS -1; 0 where the tenant uses as many as it may; how many registered shards the queue has, where that is another
--         number; or -20 where the ledger's records are of an earlier version than this code, -21 of a later one

require 'clock'

local queue = ARGV[2] .. '/' -- which no queue's name has in it, nor anything that means more in a pattern
local member = queue .. ARGV[3] .. '/' .. ARGV[4]
local is_there = redis.call('SISMEMBER', KEYS[1], member) == 1
local LOOKED_AT = 500

local function is_registered(other)
  return redis.call('SISMEMBER', KEYS[1], other) == 1
end

-- Whether the queue has any registered shard, of so many.
local function has_shard(count)
  for number = 0, count - 1 do
    if is_registered(queue .. number .. '/' .. count) then
      return true
    end
  end
  return false
end

-- How many registered shards the queue has, where that is another number: 1, or what was noted.
local function other_count()
  if ARGV[4] ~= '1' and is_registered(queue .. '0/1') then
    return 1
  end
  local noted = tonumber(redis.call('HGET', KEYS[3], 'count:' .. ARGV[2]) or nil)
  return noted and noted ~= tonumber(ARGV[4]) and has_shard(noted) and noted or nil
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
    if is_registered(sub(entry, #tenant + 2)) then
      count = count + 1
    else
      redis.call('ZREM', KEYS[5], entry)
      redis.call('HDEL', KEYS[4], match(entry, '^[^/]*/[^/]*'))
    end
  end
  return count < most
end

-- Where another program has deleted the hash, each shard tells the version of its own records (modules/shard.lua).
local version = redis.call('HGET', KEYS[3], 'layout')
if version and version ~= fields.VERSION_TEXT then
  return (tonumber(version) or 0) > fields.VERSION and -21 or -20
end
local other = not is_there and other_count()
if other then
  return other
end

if ARGV[7] ~= '0' then
  local use = ARGV[6] .. '/' .. ARGV[2]
  local known = entries_of(use, 1)[1]
  local is_counted = known and is_registered(sub(known, #ARGV[6] + 2))
  if not is_counted and not may_use(ARGV[6], tonumber(ARGV[7])) then
    return 0
  elseif not is_counted then
    redis.call('ZADD', KEYS[5], '0', ARGV[6] .. '/' .. member)
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
if not version then
  redis.call('HSET', KEYS[3], 'layout', fields.VERSION_TEXT)
end
if ARGV[4] ~= '1' then
  redis.call('HSET', KEYS[3], 'count:' .. ARGV[2], ARGV[4])
end
redis.call('SADD', KEYS[1], member)
return -1
