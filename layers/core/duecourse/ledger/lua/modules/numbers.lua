-- Numbers of the current minute, for the history of a queue and its lateness (ledger/queue_history.py): a script gathers
-- them, and writes them in one go.
--
-- They are appended to `numbers` in meta, most often by a write that a script makes in any case: a further command would
-- cost as much as all of this. A verb that adds or ends tasks calls `numbers.write` before its answer.

local ADDED, CLAIMED, DONE, AGAIN, RETRIED, DEAD = 0, 1, 2, 3, 4, 5 -- places (ledger/queue_history.py)
local RUN, WAIT, LATE = 6, 38, 70 -- where histograms begin
local LAST_BUCKET, MINUTE = 31, 60000
local ONE_ADDED = '\0\1' -- an entry
local LONG = 256 -- bytes from which on entries are summed up

local gathered -- {entry...}

function numbers.begin()
  gathered = {}
end

-- A number as an entry has it, in groups of 7 bits.
local function packed(number)
  local low = number % 128
  return number < 128 and string.char(low) or string.char(low + 128) .. packed((number - low) / 128)
end

function numbers.add(place, count)
  if count > 0 then
    gathered[#gathered + 1] = packed(place) .. packed(count)
  end
end

-- Adds a histogram: bucket n has the durations under 2^n ms, and from half of that on.
function numbers.add_histogram(place, histogram)
  for bucket, count in pairs(histogram) do
    numbers.add(place + math.min(bucket, LAST_BUCKET), count)
  end
end

-- Adds tasks by how late they began: ms -> how many.
function numbers.add_late(begun)
  local buckets = {}
  for late, count in pairs(begun) do
    local fraction, exponent = math.frexp(late)
    local bucket = late > 0 and exponent * 8 + math.floor((fraction - 0.5) * 16) or 0
    buckets[bucket] = (buckets[bucket] or 0) + count
  end
  for bucket, count in pairs(buckets) do
    numbers.add(LATE + bucket, count)
  end
end

-- Puts the field and its value on a list of those that are to be set in meta, if there is anything to be written.
function numbers.put(set)
  if gathered[1] then
    local minute, before = pack('>I4', math.floor(shard.NOW / MINUTE)), shard.NUMBERS
    if sub(before, 1, 4) ~= minute or #before >= LONG then
      require 'lines'
      before = lines.make_room(minute)
    end
    shard.NUMBERS = before .. table.concat(gathered)
    gathered = {}
    values.push(set, 'numbers', shard.NUMBERS)
  end
end

function numbers.write()
  local set = {}
  numbers.put(set)
  values.in_pieces('HSET', shard.META, set)
end
