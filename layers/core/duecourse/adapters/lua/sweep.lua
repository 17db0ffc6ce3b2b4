-- One bounded step of upkeep: takes back lapsed leases, forgets what finished long ago, hangs the bell.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's and ending's, then: retention ms, where the queue has none of its own
-- RETURNS {now, bell_at, reclaimed, died, pruned, 1 if a bound was reached, {tenant whose due set was not among KEYS...}}

--include prelude fresh record history lease ending

local BOUND = 500
local want = {}
local retention = tonumber(call('HGET', META, 'retention') or ARGV[FIRST])
local reclaimed, died, more = reclaim(BOUND, want)

local function prune()
  local sids = call('ZRANGEBYSCORE', DONE, '-inf', NOW - retention, 'LIMIT', 0, BOUND)
  local pruned, bytes = 0, 0
  while pruned < #sids and bytes < BYTES do
    local piece = { unpack(sids, pruned + 1, math.min(pruned + PIECE, #sids)) }
    for i, data in ipairs(call('HMGET', TASKS, unpack(piece))) do
      local r = open(data)
      if r then
        leave_group(piece[i], r.rest)
        bytes = bytes + #data
      end
    end
    call('ZREM', DONE, unpack(piece))
    call('HDEL', TASKS, unpack(piece))
    pruned = pruned + #piece
  end
  more = more or pruned == BOUND or pruned < #sids
  return pruned
end

local pruned = prune()
return { NOW, hang(followed), reclaimed, died, pruned, more and 1 or 0, want }
