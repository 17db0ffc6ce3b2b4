-- Empties a shard that has been without tasks or settings for long, but for its fence: it is about to be off the
-- record.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: for how long it must have been so (ms)
-- RETURNS {now, bell_at, 1, or 0 where it is not so}
--
-- An add is refused from here on until its caller has put the shard on record again. Fences go on where they were.

local KEPT = { fence = true, clock = true, bell_at = true, layout = true }

if idleness.idle_ms() < tonumber(ARGV[shard.FIRST]) then
  return { shard.NOW, bell.hang(false), 0 }
end
for _, field in ipairs(call('HKEYS', shard.META)) do
  if not KEPT[field] then
    call('HDEL', shard.META, field)
  end
end
call('DEL', shard.LOG, shard.LATE)
call('HSET', shard.META, 'leaving', 1)
return { shard.NOW, bell.hang(false), 1 }
