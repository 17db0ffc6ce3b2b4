-- Empties a shard that has been without tasks or settings for long, but for its fence: it is about to be off the
-- record.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: for how long it must have been so (ms)
-- RETURNS {now, bell_at, 1, or 0 where it is not so, or where so much is left of it that this was a step}
--
-- An add is refused from here on until its caller has registered the shard again. Fences go on where they were.

local KEPT = { fence = true, clock = true, bell_at = true, layout = true, idle = true, leave = true }
local LOOKED_AT = 1000 -- fields of meta, and entries of what waits

if idleness.idle_ms() < tonumber(ARGV[shard.FIRST]) then
  return { shard.NOW, bell.hang(false), 0 }
end
local found, gone = call('HSCAN', shard.META, call('HGET', shard.META, 'leave') or '0', 'COUNT', LOOKED_AT), {}
for i = 1, #found[2], 2 do
  if not KEPT[found[2][i]] then
    gone[#gone + 1] = found[2][i]
  end
end
values.in_pieces('HDEL', shard.META, gone)
values.in_pieces('ZREM', shard.WAITING, call('ZRANGE', shard.WAITING, 0, LOOKED_AT - 1))
if found[1] ~= '0' or call('ZCARD', shard.WAITING) > 0 then
  call('HSET', shard.META, 'leave', found[1])
  return { shard.NOW, bell.hang(false), 0 }
end
call('DEL', shard.LOG, shard.LATE, shard.HISTORY)
call('HDEL', shard.META, 'idle', 'leave')
call('HSET', shard.META, 'leaving', 1)
return { shard.NOW, bell.hang(false), 1 }
