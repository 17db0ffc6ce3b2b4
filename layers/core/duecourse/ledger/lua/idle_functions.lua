-- Tells which functions nothing has invoked for a while, and counts all of them as invoked now.
--
-- KEYS    1 hash, function -> when it was last invoked (ms)
-- ARGV    1 the clock (modules/shard.lua)   2 for how long (ms)   3... functions
-- RETURNS {function...}

local now = clock.NOW

local idle = {}
for i = 3, #ARGV do
  local last = tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or nil)
  if not last or last <= now - ARGV[2] then
    idle[#idle + 1] = ARGV[i]
  end
  redis.call('HSET', KEYS[1], ARGV[i], string.format('%.0f', now))
end
return idle
