-- Ends a request that its owner has: with its answer kept, given back unanswered, or forgotten. Or notes what the owner
-- saw, and leaves it the owner's.
--
-- KEYS    as in request_begin.lua
-- ARGV    1 the clock (modules/shard.lua)   2 "<tenant>/<key>"   3 fingerprint, 32 bytes   4 owner, 8 bytes 5 "A" and
--         the answer, "N" and the note, "U" to give it back, or "X" to forget it   6, 7 as in request_begin.lua
-- RETURNS 1, or 0 where the request is not the owner's any more

local field, state = ARGV[2], ARGV[5]
local record = redis.call('HGET', KEYS[1], field)
if sub(state, 1, 1) == 'A' and record == ARGV[3] .. state then -- sent again, for its reply was lost
  return 1
end
local mine = ARGV[3] .. 'U' .. ARGV[4]
if not record or sub(record, 1, 41) ~= mine then
  return 0
end
local bytes = 0
local held_until, noted = match(record, '^(%d+)(.*)$', 42)
if state == 'X' then
  redis.call('ZREM', KEYS[2], field)
  redis.call('HDEL', KEYS[1], field)
  bytes = -request_quota.cost(field)
elseif state == 'U' then
  redis.call('HSET', KEYS[1], field, mine .. '0' .. noted)
elseif sub(state, 1, 1) == 'N' then
  redis.call('HSET', KEYS[1], field, mine .. held_until .. ' ' .. sub(state, 2))
else
  redis.call('HSET', KEYS[1], field, ARGV[3] .. state)
  bytes = #state - 1
end
local quota = tonumber(ARGV[7])
if quota > 0 and bytes ~= 0 then
  request_quota.take(match(field, '^[^/]*'), clock.NOW, bytes, quota, tonumber(ARGV[6]))
end
return 1
