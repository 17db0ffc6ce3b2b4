-- Lets a data key seal from now on, if the one that it takes the place of still does.
--
-- KEYS    1 hash: current, the id of the data key that seals; each other field an id, with the key as it is wrapped
-- ARGV    1 the clock (modules/shard.lua)   2 id of the new key   3 the new key, wrapped   4 id of the one before it,
--         "" for none
-- RETURNS {id, wrapped} of the key that seals now

require 'clock'

local current = redis.call('HGET', KEYS[1], 'current')
local wrapped = current and redis.call('HGET', KEYS[1], current)
if not wrapped or current == ARGV[4] then -- one that is lost seals nothing
  current, wrapped = ARGV[2], ARGV[3]
  redis.call('HSET', KEYS[1], current, wrapped, 'current', current)
end
return { current, wrapped }
