-- Fences follow the clock. A server may lose its last writes, by a crash or a failover, and a shard its meta. It would
-- else draw fences again that a worker still has, and a database would reject the newer worker.
--
-- That holds while a shard draws no more than so many each millisecond, over time. 48 bits suffice to the year 2109;
-- a clock beyond that is wrong, and moves no fence further than that.

local PER_MS, LAST_MS = 64, 4393751543808

-- What the counter grows by, as a command takes it, where `n` fences are drawn: the last of them is the counter then.
function fences.step(counter, now, n)
  local behind = (now < LAST_MS and now or LAST_MS) * PER_MS - counter -- no math.max: an add of one task takes 20 us
  return string.format('%d', behind > 0 and behind + n or n)
end
