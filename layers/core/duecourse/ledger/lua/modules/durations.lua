-- Histograms of durations, as entries (modules/numbers.lua).
--
-- Begin counts the lateness of functions' tasks, take that of queries, and settle that of all others: a claim of many
-- tasks begins none of them.

-- Adds a histogram, power of two -> how many, to the one that begins at a place.
function durations.add(place, histogram)
  for power, many in pairs(histogram) do
    local bucket = power < numbers.LAST_BUCKET and power or numbers.LAST_BUCKET
    shard.entries = shard.entries .. pack(numbers.ENTRY, place + bucket, many)
  end
end

-- Adds tasks by how late they began, ms -> how many: eight buckets for each power of two (ledger/queue.py).
function durations.count_late(begun)
  local buckets = {}
  for late, many in pairs(begun) do
    local fraction, exponent = math.frexp(late)
    local bucket = late > 0 and exponent * 8 + math.floor((fraction - 0.5) * 16) or 0
    buckets[bucket] = (buckets[bucket] or 0) + many
  end
  for bucket, many in pairs(buckets) do
    shard.entries = shard.entries .. pack(numbers.ENTRY, numbers.LATE + bucket, many)
  end
end
