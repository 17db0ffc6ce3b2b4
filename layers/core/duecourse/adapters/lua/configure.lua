-- Sets the queue anew, in one of its shards.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then: fields of meta and their values for the whole queue, "" for none
-- RETURNS {now, bell_at}
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

--include prelude settings

local held = PAUSED or full() or opens_at() > NOW
set(FIRST)
if COUNT ~= '1' then
  call('HSET', META, 'shards', COUNT)
end
return { NOW, hang(held and not (PAUSED or full() or opens_at() > NOW)) }
