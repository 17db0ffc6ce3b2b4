-- Takes a shard off the record, unless somebody put it there again since it was marked as leaving.
--
-- KEYS    1 <namespace>:shards, as in register.lua   2 the set of marks, 3 and 4 who made queues in an
--         earlier version: keys 4 and 5 there
-- ARGV    1 the clock (modules/shard.lua)   2 the shard's member   3 its mark
-- RETURNS 1, or 0 where it stays

require 'clock'

local leaving = redis.call('SREM', KEYS[2], ARGV[3])
if leaving == 1 then
  redis.call('SREM', KEYS[1], ARGV[2])
  local queue = match(ARGV[2], '^[^/]*')
  local made = redis.call('HGET', KEYS[3], queue)
  if made then
    redis.call('HDEL', KEYS[3], queue)
    redis.call('ZREM', KEYS[4], made)
  end
end
return leaving
