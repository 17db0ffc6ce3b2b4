-- Opens a shard that was closed: its queue has so many shards now, and its fences go on above those of all before.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's, then: how many shards   the least fence counter   1 where a user had paused the queue
-- RETURNS {now, bell_at}

local fence = tonumber(call('HGET', META, 'fence') or 0)
call('HSET', META, 'shards', ARGV[FIRST], 'fence', math.max(fence, tonumber(ARGV[FIRST + 1])))
if ARGV[FIRST + 2] == '1' then
  call('HSET', META, 'paused', 1)
else
  call('HDEL', META, 'paused')
end
return { NOW, hang(true) }
