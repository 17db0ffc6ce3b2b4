-- Puts a shard on record, unless its queue stands there with another number of shards.
--
-- KEYS    1 <namespace>:shards, a set of "<queue>/<number>/<count>"   2 the set of marks, "<member>#<who>", of those
--         that are leaving it, mostly none or one
--         3 hash: layout, the version of records that new shards have (adapters/redis/layout.py)
--         4 hash: queue -> "<tenant>/<member>", who made it and its first shard, of tenants that may not make more
-- ARGV    1 the clock (modules/shard.lua)   2 queue   3 the shard's number   4 how many shards the queue has   5 1 to
--         write it though it stands there already: who waits for replicas waits for what its own connection wrote
--         6 the newest version of records   7 the tenant that makes the queue, where it is new   8 how many queues each
--         tenant may have made, 0 for any
-- RETURNS 0 where the tenant has made as many as it may; the version of records that new shards have, below 0; or how many shards the queue has on record
--
-- The first shard of a ledger is of the newest version, and so are all that follow it. A ledger of before has shards
-- and tells no version: then new ones are of the oldest, which whoever added to it until now can read.

require 'clock'

local queue = ARGV[2] .. '/' -- which no queue's name has in it, nor anything that means more in a pattern
local member = queue .. ARGV[3] .. '/' .. ARGV[4]
local is_there = redis.call('SISMEMBER', KEYS[1], member) == 1
local is_first = redis.call('SCARD', KEYS[1]) == 0

-- The server looks for them: to hand out a whole set would take it ten times as long.
local function matching(key, pattern)
  local members, cursor = {}, '0'
  repeat
    local found = redis.call('SSCAN', key, cursor, 'MATCH', pattern, 'COUNT', '1000')
    for _, one in ipairs(found[2]) do
      members[#members + 1] = one
    end
    cursor = found[1]
  until cursor == '0'
  return members
end

-- Whether the tenant may make a queue more. What was made and is forgotten by now, or has another number of shards
-- since, counts no more.
local function may_make(tenant, most)
  local owned, count = redis.call('HGETALL', KEYS[4]), 0
  for i = 1, #owned, 2 do
    local whose, first = match(owned[i + 1], '^([^/]*)/(.*)$')
    if redis.call('SISMEMBER', KEYS[1], first) == 0 then
      redis.call('HDEL', KEYS[4], owned[i])
    elseif whose == tenant then
      count = count + 1
    end
  end
  return count < most
end

local others = is_there and {} or matching(KEYS[1], queue .. '*')
for _, other in ipairs(others) do
  local count = match(other, '^[^/]*/%d+/(%d+)$') -- else it names no shard
  if count and count ~= ARGV[4] then
    return tonumber(count)
  end
end

if not is_there and #others == 0 and ARGV[8] ~= '0' then
  if not may_make(ARGV[7], tonumber(ARGV[8])) then
    return 0
  end
  redis.call('HSET', KEYS[4], ARGV[2], ARGV[7] .. '/' .. member)
end

if ARGV[5] == '1' then
  redis.call('SREM', KEYS[1], member)
end
-- So that whoever is forgetting it lets it be. It comes first, also where there is no mark: what follows a SREM runs
-- where memory is short.
redis.call('SREM', KEYS[2], '')
for _, mark in ipairs(matching(KEYS[2], member .. '#*')) do -- a tick that was killed leaves its own behind
  redis.call('SREM', KEYS[2], mark)
end
if is_first then
  redis.call('HSET', KEYS[3], 'layout', ARGV[6])
end
redis.call('SADD', KEYS[1], member)
return -(redis.call('HGET', KEYS[3], 'layout') or fields.OLDEST)
