-- Empties a shard that has been without tasks or settings for long, but for its fence: it is about to be off the record.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then: for how long it must have been so (ms)
-- RETURNS {now, bell_at, 1, or 0 where it is not so}
--
-- An add is refused from here on until its caller has put the shard on record again. Fences go on where they were.

--include prelude idle

if idle_ms() < tonumber(ARGV[FIRST]) then
  return { NOW, hang(false), 0 }
end
for _, field in ipairs(call('HKEYS', META)) do
  if field ~= 'fence' and field ~= 'clock' and field ~= 'bell_at' then
    call('HDEL', META, field)
  end
end
call('DEL', LOG, LATE)
call('HSET', META, 'leaving', 1)
return { NOW, hang(false), 1 }
