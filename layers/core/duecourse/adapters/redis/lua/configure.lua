-- Sets the queue anew, in one of its shards.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then: 1 for a default, which sets what is not set and lets the queue be forgotten; fields of meta and
--         their values for the whole queue, "" for none
-- RETURNS {now, bell_at}
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

--include prelude settings

local held = PAUSED or full() or opens_at() > NOW
if ARGV[FIRST] == '1' then
  call('ZREM', LEASED, '')
  call('HDEL', META, 'idle') -- whoever set this goes on for a while in the belief that it is set
  for at = FIRST + 1, #ARGV, 2 do
    if call('HSETNX', META, ARGV[at], ARGV[at + 1]) == 1 then
      call('HSET', META, 'defaulted', 1)
    end
  end
  read_meta()
else
  set(FIRST + 1)
  call('HDEL', META, 'defaulted')
end
if COUNT ~= '1' then
  call('HSET', META, 'shards', COUNT)
end
return { NOW, hang(held and not (PAUSED or full() or opens_at() > NOW)) }
