-- Histograms of durations, as entries (modules/numbers.lua).
--
-- Begin counts the lateness of functions' tasks, take that of queries, and settle that of all others: a claim of many
-- tasks begins none of them.

-- Adds durations, ms -> how many, to the histogram that begins at a place. Lateness has eight buckets for each power of
-- two (ledger/queue.py).
function durations.count(place, by_ms)
  local histogram = {}
  for ms, many in pairs(by_ms) do
    local fraction, bucket = math.frexp(ms)
    if ms <= 0 then -- the clock was put back
      bucket = 0
    elseif place == numbers.LATE then
      bucket = bucket * 8 + math.floor((fraction - 0.5) * 16)
    elseif bucket > numbers.LAST_BUCKET then
      bucket = numbers.LAST_BUCKET
    end
    histogram[bucket] = (histogram[bucket] or 0) + many
  end
  for bucket, many in pairs(histogram) do
    shard.entries = shard.entries .. pack(numbers.ENTRY, place + bucket, many)
  end
end
