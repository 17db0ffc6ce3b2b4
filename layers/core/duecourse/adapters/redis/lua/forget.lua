-- Forgets the oldest requests: a bounded step.
--
-- KEYS    1 hash of requests   2 zset of the same, both as in begin.lua
-- ARGV    1 clock ("" for the server's)   2 how long a request is remembered (ms)   3 the most that are forgotten
-- RETURNS how many were forgotten

local seconds_micros = redis.call('TIME')
local now = tonumber(ARGV[1]) or seconds_micros[1] * 1000 + math.floor(seconds_micros[2] / 1000)
local cut = string.format('%.0f', now - ARGV[2])
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', cut, 'LIMIT', 0, ARGV[3])
if #old > 0 then
  redis.call('ZREM', KEYS[2], unpack(old))
  redis.call('HDEL', KEYS[1], unpack(old))
end
return #old
