-- Notes how far a numbered file of schedules is applied, never over a higher number.
--
-- KEYS    1 hash: begun, the highest number that was begun; begun_at (ms); digest, that file's; applied, the last
--         number applied; settled; "entries:<number>:<digest>", what each file begun since then is to make (JSON)
-- ARGV    1 the clock (modules/shard.lua)   2 number   3 begin, finish or settle   4 digest   5 what it makes, for a
--         begin
-- RETURNS all fields and their values, as they are then

local KEY, number, step = KEYS[1], tonumber(ARGV[2]), ARGV[3]
local known = redis.call('HMGET', KEY, 'begun', 'applied')
local begun, applied = tonumber(known[1] or 0) or 0, tonumber(known[2] or 0) or 0

if step == 'begin' and number >= begun and applied < number then
  if number > begun then
    redis.call('HSET', KEY, 'begun', ARGV[2], 'begun_at', string.format('%.0f', clock.NOW))
  end
  redis.call('HSET', KEY, 'digest', ARGV[4], 'entries:' .. ARGV[2] .. ':' .. ARGV[4], ARGV[5])
elseif step == 'finish' and number == begun then
  redis.call('HSET', KEY, 'applied', ARGV[2])
elseif step == 'settle' and number == begun and number == applied then
  local digest = redis.call('HGET', KEY, 'digest') or ''
  for _, field in ipairs(redis.call('HKEYS', KEY)) do
    if string.sub(field, 1, 8) == 'entries:' and field ~= 'entries:' .. ARGV[2] .. ':' .. digest then
      redis.call('HDEL', KEY, field)
    end
  end
  redis.call('HSET', KEY, 'settled', ARGV[2])
end
return redis.call('HGETALL', KEY)
