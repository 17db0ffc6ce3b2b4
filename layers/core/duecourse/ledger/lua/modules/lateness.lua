-- Lateness of tasks, from the due time to the first line of the handler, as counts in buckets (ledger/queue.py).
--
-- Begin counts the tasks of functions, take counts queries, and settle counts all others: a claim of many tasks begins
-- none of them.

local SLOT, SLOTS = 300000, 13 -- of ledger/queue.py

-- Counts tasks by how late they began: ms -> how many. Slots that were left out hold what is over an hour old, and so
-- does the one that begins.
function lateness.count(begun)
  local slot, buckets = math.floor(shard.NOW / SLOT), {}
  for late, count in pairs(begun) do
    local fraction, exponent = math.frexp(late)
    local bucket = late > 0 and exponent * 8 + math.floor((fraction - 0.5) * 16) or 0
    buckets[bucket] = (buckets[bucket] or 0) + count
  end
  if next(buckets) and slot ~= shard.LATE_SLOT then
    local stale, fields = {}, {}
    for passed = math.max(shard.LATE_SLOT, slot - SLOTS) + 1, slot do
      stale[passed % SLOTS .. ''] = true
    end
    for _, field in ipairs(call('HKEYS', shard.LATE)) do
      if stale[match(field, '^%d+')] then
        fields[#fields + 1] = field
      end
    end
    values.in_pieces('HDEL', shard.LATE, fields)
    call('HSET', shard.META, 'late_slot', slot)
  end
  for bucket, count in pairs(buckets) do
    call('HINCRBY', shard.LATE, slot % SLOTS .. ':' .. bucket, count)
  end
end
