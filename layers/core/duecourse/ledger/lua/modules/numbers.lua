-- Numbers of the current minute, for the history of a queue and its lateness (ledger/queue_history.py).
--
-- A script gathers entries, of a place and a number each, in `shard.entries`. They are appended to `numbers` in meta,
-- most often by a write that the script makes in any case: a further command costs more than all of this. A verb that
-- adds or ends tasks closes the minute before, if it is over (modules/lines.lua), and writes what is left at its end.

local ADDED, CLAIMED, DONE, AGAIN, RETRIED, DEAD = 0, 1, 2, 3, 4, 5 -- places
local RUN, WAIT, LATE = 6, 38, 70 -- where histograms begin: bucket n has the durations under 2^n ms
local LAST_BUCKET, MINUTE = 31, 60000
local ENTRY, MOST = '>I2I2', 65535 -- the highest number of an entry
local ONE_ADDED, ONE_RETRIED, ONE_DEAD = '\0\0\0\1', '\0\4\0\1', '\0\5\0\1'
local FEW, MOST_BYTES = 53, 4000 -- bytes of a text that are not summed up, and that are at the most

-- Puts the field and its value on a list of those that are to be set in meta, or sets it, if there is anything to write.
function numbers.write(set)
  if shard.entries == '' then
    return
  end
  local text = shard.NUMBERS .. shard.entries
  if #text > FEW + 6 * byte(text, 5) then -- half as many again as were summed up last, and a few
    local sums, out, bytes = {}, {}, { byte(text, 6, MOST_BYTES) } -- in one go: a call for each costs more
    for at = 1, #bytes - 3, 4 do
      local place, number = bytes[at] * 256 + bytes[at + 1], bytes[at + 2] * 256 + bytes[at + 3]
      sums[place] = (sums[place] or 0) + number
    end
    for place, number in pairs(sums) do
      while number > 0 do
        out[#out + 1] = pack(ENTRY, place, math.min(number, MOST))
        number = number - MOST
      end
    end
    text = sub(text, 1, 4) .. string.char(math.min(#out, 255)) .. table.concat(out)
  end
  shard.NUMBERS, shard.entries = text, ''
  if set then
    values.push(set, 'numbers', text)
  else
    call('HSET', shard.META, 'numbers', text)
  end
end
