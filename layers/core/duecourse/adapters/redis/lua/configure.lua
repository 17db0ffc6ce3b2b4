-- Sets the queue anew, in one of its shards.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: 1 for a default, which sets what is not set and lets the queue be forgotten; fields of
--         meta and their values for the whole queue, "" for none
-- RETURNS {now, bell_at}
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local was_throttled = bell.is_throttled()
if ARGV[shard.FIRST] == '1' then
  call('ZREM', shard.LEASED, '')
  call('HDEL', shard.META, 'idle') -- whoever set this goes on for a while in the belief that it is set
  for at = shard.FIRST + 1, #ARGV, 2 do
    if ARGV[at + 1] ~= '' and call('HSETNX', shard.META, ARGV[at], ARGV[at + 1]) == 1 then
      call('HSET', shard.META, 'defaulted', 1)
    end
  end
  shard.read_meta()
else
  settings.set(shard.FIRST + 1)
  call('HDEL', shard.META, 'defaulted')
end
if shard.COUNT ~= '1' then
  call('HSET', shard.META, 'shards', shard.COUNT)
end
return { shard.NOW, bell.hang(was_throttled and not bell.is_throttled()) }
