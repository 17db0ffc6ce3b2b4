-- Has the ends of this shard's tasks published for a while, and answers which of some tasks have ended already.
--
-- KEYS    as in modules/shard.lua, without the due sets
-- ARGV    those of shard, then for how long (ms), then the stored ids
-- RETURNS {1 or 0...}, a number for each id: 1 for a task that is done, cancelled or dead, or not there
--
-- Both are one step: an end is in the answer, or it is published. Its first write is a ZREM: a script that begins so
-- runs to its end where memory is short.

local ended = {}
call('ZREM', shard.LEASED, '')
if shard.FENCE > 0 then -- else the shard never had a task, and nothing is left in it by who waits for one
  call('HSET', shard.META, 'awaited', values.text_of(shard.NOW + ARGV[shard.FIRST]))
end
for at = shard.FIRST + 1, #ARGV do
  local sid = ARGV[at]
  local has_ended = call('ZSCORE', shard.DONE, sid) or call('ZSCORE', shard.DEAD, sid)
  ended[#ended + 1] = (has_ended or call('HEXISTS', shard.TASKS, sid) == 0) and 1 or 0
end
return ended
