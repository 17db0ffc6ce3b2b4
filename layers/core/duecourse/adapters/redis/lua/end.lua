-- Ends a request that its owner has: with its answer kept, given back unanswered, or forgotten.
--
-- KEYS    1 hash of requests   2 zset of the same, both as in begin.lua
-- ARGV    1 "<tenant>/<key>"   2 fingerprint, 32 bytes   3 owner, 8 bytes
--         4 "A" and the answer, "U" to give it back, or "X" to forget it
-- RETURNS 1, or 0 where the request is not the owner's any more

local record = redis.call('HGET', KEYS[1], ARGV[1])
if sub(ARGV[4], 1, 1) == 'A' and record == ARGV[2] .. ARGV[4] then -- sent again, for its reply was lost
  return 1
end
local mine = ARGV[2] .. 'U' .. ARGV[3]
if not record or sub(record, 1, 41) ~= mine then
  return 0
end
if ARGV[4] == 'X' then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[4] == 'U' and mine .. '0' or ARGV[2] .. ARGV[4])
end
return 1
