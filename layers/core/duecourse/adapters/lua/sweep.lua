-- One bounded step of upkeep: takes back lapsed leases, forgets what finished long ago, hangs the bell.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's, then: retention ms
-- RETURNS {now, bell_at, reclaimed, died, pruned, 1 if a bound was reached, {tenant whose due set was not among KEYS...}}

local BOUND = 500
local want = {}
local reclaimed, died = reclaim(BOUND, want)

local function prune()
  local sids = call('ZRANGEBYSCORE', DONE, '-inf', NOW - tonumber(ARGV[FIRST]), 'LIMIT', 0, BOUND)
  if #sids == 0 then
    return 0
  end
  for i, data in ipairs(call('HMGET', TASKS, unpack(sids))) do
    if data then
      leave_group(sids[i], string.sub(data, 56))
    end
  end
  call('ZREM', DONE, unpack(sids))
  call('HDEL', TASKS, unpack(sids))
  return #sids
end

local pruned = prune()
local more = reclaimed == BOUND or pruned == BOUND
return { NOW, hang(false), reclaimed, died, pruned, more and 1 or 0, want }
