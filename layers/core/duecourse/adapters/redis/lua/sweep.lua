-- One bounded step of upkeep: takes back lapsed leases, forgets what ended long ago, hangs the bell.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's and ending's, then: retention ms, where the queue has none of its own; how long the dead are kept
--         (ms, "" for good)
-- RETURNS {now, bell_at, reclaimed, died, pruned, 1 if a bound was reached, {tenant whose due set was not among KEYS...},
--         for how long it has had neither tasks nor settings (ms, -1 where it has)}

--include prelude idle fresh record history lease ending

local BOUND = 500
local want = {}
local retention, dead_retention = tonumber(call('HGET', META, 'retention') or ARGV[FIRST]), tonumber(ARGV[FIRST + 1])
local reclaimed, died, more = reclaim(BOUND, want, BYTES / 2)

-- Forgets the tasks in `place` that ended before this instant. Answers how many.
local function prune(place, before)
  local sids = call('ZRANGEBYSCORE', place, '-inf', before, 'LIMIT', 0, BOUND)
  local pruned = 0
  while pruned < #sids and weight < BYTES do
    local some = { unpack(sids, pruned + 1, math.min(pruned + piece(pruned), #sids)) }
    call('ZREM', place, unpack(some))
    for i, data in ipairs(call('HMGET', TASKS, unpack(some))) do
      local r = open(data)
      if r then
        leave_group(some[i], r.rest)
      end
    end
    call('HDEL', TASKS, unpack(some))
    pruned = pruned + #some
  end
  more = more or pruned == BOUND or pruned < #sids
  return pruned
end

-- Of the dead none is forgotten before a sweep has looked for such for as long: they were kept for good, once.
local function prune_dead()
  if not dead_retention or call('ZCARD', DEAD) == 0 then
    return 0
  end
  local since, before = tonumber(call('HGET', META, 'dead_swept') or nil), NOW - dead_retention
  if not since then
    call('ZREM', LEASED, '') -- this may be its first write, and memory short
    call('HSET', META, 'dead_swept', NOW_TEXT)
  end
  return (since or NOW) <= before and prune(DEAD, before) or 0
end

local pruned = prune(DONE, NOW - retention) + prune_dead()
local idle = idle_ms()
return { NOW, hang(followed), reclaimed, died, pruned, more and 1 or 0, want, idle }
