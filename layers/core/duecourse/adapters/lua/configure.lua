-- Sets the queue anew, in one of its shards.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's, then: fields of meta and their values for the whole queue, "" for none
-- RETURNS {now, bell_at}

local held = PAUSED or full() or opens_at() > NOW
if COUNT ~= '1' then
  call('HSET', META, 'shards', COUNT)
end
set(FIRST)
return { NOW, hang(held and not (PAUSED or full() or opens_at() > NOW)) }
