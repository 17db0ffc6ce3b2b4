-- Opens a shard that was closed: its queue has so many shards now, and its fences go on above those of all before.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: how many shards, the least fence counter, when the newest claim of the whole queue
--         within a rate's window was (0 for none), then how the queue is set, as in configure.lua
-- RETURNS {now, bell_at}
--
-- Whose claims the rate's log holds changes with the number of shards: until the newest has left the window, each shard
-- counts its whole part as claimed.

local fence = math.max(tonumber(call('HGET', shard.META, 'fence') or 0), tonumber(ARGV[shard.FIRST + 1])) + 1
local claimed_at = tonumber(ARGV[shard.FIRST + 2])
shard.COUNT = ARGV[shard.FIRST]
call('HSET', shard.META, 'shards', shard.COUNT, 'fence', fence)
settings.set(shard.FIRST + 3)
if tonumber(match(KEYS[1], '/(%d+)}:tasks$')) >= tonumber(shard.COUNT) then
  call('DEL', shard.LOG, shard.LATE, shard.HISTORY) -- meta alone stays, to refuse those who still count on this shard
  call('HDEL', shard.META, 'logged', 'numbers') -- or it would count for ever, once there is a shard of this number again
  shard.LOGGED = 0
elseif shard.RATE and claimed_at > shard.NOW - shard.PER then
  call('DEL', shard.LOG)
  call('ZADD', shard.LOG, claimed_at, string.format('%d:%d', fence, shard.RATE))
  call('HSET', shard.META, 'logged', shard.RATE)
  shard.LOGGED = shard.RATE
end
return { shard.NOW, bell.hang(true) }
