-- Stops or resumes handing out the shard's tasks.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's, then: 1 to pause, 0 to resume
-- RETURNS {now, bell_at}

if ARGV[FIRST] == '1' then
  call('HSET', META, 'paused', 1)
  return { NOW, hang(false) }
end
return { NOW, hang(call('HDEL', META, 'paused') == 1) }
