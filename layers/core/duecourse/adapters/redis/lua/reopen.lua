-- Opens a shard that was closed: its queue has so many shards now, and its fences go on above those of all before.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then: how many shards, the least fence counter, when the newest claim of the whole queue within a
--         rate's window was (0 for none), then how the queue is set, as in configure.lua
-- RETURNS {now, bell_at}
--
-- Whose claims the rate's log holds changes with the number of shards: until the newest has left the window, each shard
-- counts its whole part as claimed.

--include prelude settings

local fence = math.max(tonumber(call('HGET', META, 'fence') or 0), tonumber(ARGV[FIRST + 1])) + 1
local claimed_at = tonumber(ARGV[FIRST + 2])
COUNT = ARGV[FIRST]
call('HSET', META, 'shards', COUNT, 'fence', fence)
set(FIRST + 3)
if tonumber(string.match(KEYS[1], '/(%d+)}:tasks$')) >= tonumber(COUNT) then
  call('DEL', LOG, LATE) -- meta alone stays, to refuse those who still count on this shard
  call('HDEL', META, 'logged') -- or it would count against the shard for ever, once there is one of this number again
  LOGGED = 0
elseif RATE and claimed_at > NOW - PER then
  call('DEL', LOG)
  call('ZADD', LOG, claimed_at, fence .. ':' .. RATE)
  call('HSET', META, 'logged', RATE)
  LOGGED = RATE
end
return { NOW, hang(true) }
