-- Puts a queue on record with another number of shards, in place of all of its shards that stand there.
--
-- KEYS    1 <namespace>:shards, as in register.lua   2 the set of marks, as there
-- ARGV    1 the clock (modules/shard.lua)   2 how many members are to go   3... those, then those that are to stand there
-- RETURNS 1

require 'clock'

local gone, members = {}, {}
for i = 3, #ARGV do
  local list = i - 2 <= tonumber(ARGV[2]) and gone or members
  list[#list + 1] = ARGV[i]
end
values.in_pieces('SREM', KEYS[1], gone)
redis.call('DEL', KEYS[2]) -- a process that is forgetting a shard gives up
values.in_pieces('SADD', KEYS[1], members)
return 1
