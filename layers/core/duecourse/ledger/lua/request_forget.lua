-- Forgets the oldest requests: a bounded step.
--
-- KEYS    as in request_begin.lua
-- ARGV    1 the clock (modules/shard.lua)   2 how long a request is remembered (ms)   3 the most that are forgotten
-- RETURNS how many were forgotten

local now = clock.NOW
local cut = string.format('%.0f', now - ARGV[2])
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', cut, 'LIMIT', 0, ARGV[3])
if #old > 0 then
  redis.call('ZREM', KEYS[2], unpack(old))
  redis.call('HDEL', KEYS[1], unpack(old))
end
local whole = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[3])
if #whole > 0 then
  redis.call('ZREM', KEYS[3], unpack(whole))
end
return #old
