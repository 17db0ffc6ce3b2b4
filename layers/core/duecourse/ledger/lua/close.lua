-- Pauses the shard; and, once nothing in it is leased, closes it to all but who changes how many its queue has.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: what `shards` shall be in meta, "" to pause only
-- RETURNS {now, bell_at, leased, fence, 1 where a user had paused it, when the newest claim in the log was, 0 for none}

local paused, leased = shard.PAUSED, call('ZCARD', shard.LEASED)
if not paused then
  shard.PAUSED = 'reshard'
  call('HSET', shard.META, 'paused', shard.PAUSED)
end
if leased == 0 and ARGV[shard.FIRST] ~= '' then
  call('HSET', shard.META, 'shards', ARGV[shard.FIRST])
end
local fence, claimed_at = call('HGET', shard.META, 'fence'), call('ZRANGE', shard.LOG, -1, -1, 'WITHSCORES')[2]
return {
  shard.NOW, bell.hang(false), leased, tonumber(fence or 0), paused == '1' and 1 or 0, tonumber(claimed_at) or 0,
}
