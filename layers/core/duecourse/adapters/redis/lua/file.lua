-- Notes how far a numbered file of schedules is applied, never over a higher number.
--
-- KEYS    1 hash: begun, the highest number that was begun; applied, the last number applied; entries, what that made
-- ARGV    1 number   2 "begin" or "finish"   3 what it made (JSON), for a finish
-- RETURNS {begun, applied, entries} as they are then

local begun, number = tonumber(redis.call('HGET', KEYS[1], 'begun') or 0) or 0, tonumber(ARGV[1])
if ARGV[2] == 'begin' and number > begun then
  redis.call('HSET', KEYS[1], 'begun', ARGV[1])
elseif ARGV[2] == 'finish' and number == begun then
  redis.call('HSET', KEYS[1], 'applied', ARGV[1], 'entries', ARGV[3])
end
local known = redis.call('HMGET', KEYS[1], 'begun', 'applied', 'entries')
return { known[1] or '0', known[2] or '0', known[3] or '[]' }
