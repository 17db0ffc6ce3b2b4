-- Writes what a deployment has, and drops what none has written for a while.
--
-- KEYS    1 zset, "inline <kind>", "target <kind>" or "results <place>" -> when a deployment last wrote it (ms)
-- ARGV    1 the clock (modules/shard.lua)   2 age from which an entry is renewed (ms)   3 how long one is kept that
--         none writes (ms)   4... the deployment's entries
-- RETURNS how many entries were written or dropped
--
-- Deployments beside each other each write their own: neither undoes the other's. Its first write is a ZREM: a
-- script that begins so runs to its end where memory is short.

local now, changed = clock.NOW, 0
redis.call('ZREM', KEYS[1], '')
for i = 4, #ARGV do
  local at = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or nil)
  if not at or at > now or at <= now - ARGV[2] then -- one ahead of the clock is of a clock that was put back
    redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[i])
    changed = changed + 1
  end
end
local old = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[3]), 'LIMIT', '0', '1000')
for _, entry in ipairs(old) do
  redis.call('ZREM', KEYS[1], entry)
end
return changed + #old
