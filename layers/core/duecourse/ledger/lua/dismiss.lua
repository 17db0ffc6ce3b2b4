-- Takes one of a tenant's queries off those in flight; one that is not there any more is no error.
--
-- KEYS    1 as for admit
-- ARGV    1 the clock (modules/shard.lua)   2 tenant   3 its entry, as admit answered it
-- RETURNS 1
--
-- Its first write is a HDEL: a script that begins so runs to its end where memory is short.

require 'clock'

local others = ''
for entry in string.gmatch(redis.call('HGET', KEYS[1], ARGV[2]) or '', '%S+') do
  if entry ~= ARGV[3] then
    others = others .. entry .. ' '
  end
end
redis.call('HDEL', KEYS[1], ARGV[2])
if others ~= '' then
  redis.call('HSET', KEYS[1], ARGV[2], others)
end
return 1
