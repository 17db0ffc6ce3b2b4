-- Takes a shard off the record, unless somebody put it there again since it was marked as leaving.
--
-- KEYS    1 <namespace>:shards, as in register.lua   2 the set of marks
-- ARGV    1 the clock (modules/shard.lua)   2 the shard's member   3 its mark
-- RETURNS 1, or 0 where it stays

require 'clock'

local leaving = redis.call('SREM', KEYS[2], ARGV[3])
if leaving == 1 then
  redis.call('SREM', KEYS[1], ARGV[2])
end
return leaving
