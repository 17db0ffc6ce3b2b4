-- Registers a queue with another number of shards, in place of all of its registered shards.
--
-- KEYS    1 <namespace>:shards, as in register.lua   2 the set of marks, 3 the hash of counts, as there
-- ARGV    1 the clock (modules/shard.lua)   2 queue   3 how many shards it has   4 how many members are to go
--         5... those, then those that are to stand there
-- RETURNS 1

require 'clock'

local FIRST = 5
local gone, members = {}, {}
for i = FIRST, #ARGV do
  local list = i - FIRST < tonumber(ARGV[4]) and gone or members
  list[#list + 1] = ARGV[i]
end
values.in_pieces('SREM', KEYS[1], gone)
redis.call('DEL', KEYS[2]) -- a process that is forgetting a shard gives up
values.in_pieces('SADD', KEYS[1], members)
redis.call('HSET', KEYS[3], 'count:' .. ARGV[2], ARGV[3])
return 1
