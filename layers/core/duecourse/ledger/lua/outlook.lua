-- When one shard next has something to do, in the fewest reads: a tick asks every shard, and most have nothing. It
-- writes nothing.
--
-- KEYS    as in modules/shard.lua, without the due sets
-- ARGV    1 how many shards the queue has
-- RETURNS {now, the instant at which a task comes due or a lease ends (nil for none, 1 where due tasks wait), how many
--         are dead}, or a negative number: -10 the queue has another number of shards

local HEADS, RING, LEASED, DEAD = KEYS[2], KEYS[3], KEYS[4], KEYS[6]
local META, PARKED, WAITING = KEYS[8], KEYS[10], KEYS[13]

if (call('HGET', META, 'shards') or ARGV[1]) ~= ARGV[1] then
  return -10
end

local function first(key)
  return tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
end

local at = 1
-- In the last, before that are deliveries.
if call('ZCARD', RING) + call('ZCARD', PARKED) == 0 and call('ZLEXCOUNT', WAITING, '[\1', '+') == 0 then
  local head, lease = first(HEADS), first(LEASED)
  at = head and lease and math.min(head, lease) or head or lease or false
end
local time = call('TIME')
return { time[1] * 1000 + math.floor(time[2] / 1000), at, call('ZCARD', DEAD) }
