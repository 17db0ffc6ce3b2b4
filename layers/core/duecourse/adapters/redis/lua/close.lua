-- Pauses the shard; and, once nothing in it is leased, closes it to all but who changes how many its queue has.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then: what `shards` shall be in meta, "" to pause only
-- RETURNS {now, bell_at, leased, fence, 1 where a user had paused it, when the newest claim in the log was, 0 for none}

--include prelude

local paused, leased = PAUSED, call('ZCARD', LEASED)
if not paused then
  PAUSED = 'reshard'
  call('HSET', META, 'paused', PAUSED)
end
if leased == 0 and ARGV[FIRST] ~= '' then
  call('HSET', META, 'shards', ARGV[FIRST])
end
return { NOW, hang(false), leased, tonumber(call('HGET', META, 'fence') or 0), paused == '1' and 1 or 0,
  tonumber(call('ZRANGE', LOG, -1, -1, 'WITHSCORES')[2]) or 0 }
