-- One tenant's part of a shard in numbers. It writes nothing.
--
-- KEYS    as in modules/shard.lua, with the due set of the tenant alone
-- ARGV    the tenant, how many of the newest of `done` and of `dead` to look at, then fields of meta
-- RETURNS {now, scheduled, leased, done and dead among those, when its first task is due (nil for none), the fields'
--         values}

local DONE, DEAD, META, DUE = KEYS[5], KEYS[6], KEYS[8], KEYS[15]
local prefix = ARGV[1] .. '/'

local function count_own(key)
  local count = 0
  for _, sid in ipairs(call('ZRANGE', key, '-' .. ARGV[2], -1)) do
    if sub(sid, 1, #prefix) == prefix then
      count = count + 1
    end
  end
  return count
end

return {
  values.now(''),
  call('ZCARD', DUE), tonumber(call('HGET', META, 'running:' .. ARGV[1]) or 0), count_own(DONE), count_own(DEAD),
  call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or false,
  call('HMGET', META, unpack(ARGV, 3)),
}
