-- Pauses the shard; and, once nothing in it is leased, closes it to all but who changes how many its queue has.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's, then: what `shards` shall be in meta, "" to pause only
-- RETURNS {now, bell_at, leased, fence, 1 where a user had paused it}

local paused, leased = call('HGET', META, 'paused'), call('ZCARD', LEASED)
if not paused then
  call('HSET', META, 'paused', 'reshard')
end
if leased == 0 and ARGV[FIRST] ~= '' then
  call('HSET', META, 'shards', ARGV[FIRST])
end
return { NOW, hang(false), leased, tonumber(call('HGET', META, 'fence') or 0), paused == '1' and 1 or 0 }
