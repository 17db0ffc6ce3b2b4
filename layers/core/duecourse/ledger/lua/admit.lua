-- Admits one of a tenant's queries to its call, unless as many are in flight as may be.
--
-- KEYS    1 hash, tenant -> "<until when (ms)>:<id> " of each of its queries in flight
-- ARGV    1 the clock (modules/shard.lua)   2 tenant   3 id   4 how long the call may take (ms)   5 how many at a time
-- RETURNS the entry, "" where it is not admitted
--
-- An entry ends by itself: a process that was killed takes no place for longer than its call. One further ahead than
-- any call can take is of a clock that was put back.

local LONGEST = 900000 -- of a function's timeouts

local now, others, count = clock.NOW, '', 0
for until_at, id in string.gmatch(redis.call('HGET', KEYS[1], ARGV[2]) or '', '(%d+):(%S+)') do
  local left = tonumber(until_at) - now
  if left > 0 and left <= LONGEST and id ~= ARGV[3] then -- its own: this may be sent twice
    others, count = others .. until_at .. ':' .. id .. ' ', count + 1
  end
end
if count >= tonumber(ARGV[5]) then
  return ''
end
local entry = string.format('%.0f:%s', now + ARGV[4], ARGV[3])
redis.call('HSET', KEYS[1], ARGV[2], others .. entry .. ' ')
return entry
