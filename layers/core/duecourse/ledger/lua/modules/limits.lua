-- Limits of the leases that begin: how many a queue and a tenant may have, how long they are, the log of the rate.

local RECLAIM = 500 -- lapsed leases that are taken back first
local RECLAIM_BYTES = 1000000 -- bytes of their records at the most

-- The rate's log counts claims, "fence:count" at the time of the newest that it counts. Claims of one thousandth of the
-- window are one entry. So neither its length, nor what leaves it at once, grows with the rate.
local ENTRIES = 2000 -- of a log that is longer, for it was written when each claim was one

-- Set and not incremented, for another program may have left there what is no number.
local function count_logged(change)
  shard.LOGGED = math.max(shard.LOGGED + change, 0)
  call('HSET', shard.META, 'logged', values.text_of(shard.LOGGED))
end

-- The rate's window moves on: what has left it is forgotten. Where the clock was put back, what is ahead of it counts
-- from now, or the queue would be throttled for as long as that step.
local function slide()
  local gone, count = call('ZRANGEBYSCORE', shard.LOG, '-inf', shard.NOW - shard.PER, 'LIMIT', 0, ENTRIES), 0
  for _, entry in ipairs(gone) do
    count = count + match(entry, '%d+$')
  end
  if count > 0 then
    call('ZREM', shard.LOG, unpack(gone))
    count_logged(-count)
  end
  local ahead, members = call('ZRANGEBYSCORE', shard.LOG, '(' .. shard.NOW_TEXT, '+inf', 'LIMIT', 0, ENTRIES), {}
  for _, entry in ipairs(ahead) do
    values.push(members, shard.NOW_TEXT, entry)
  end
  values.in_pieces('ZADD', shard.LOG, members)
end

-- How many leases may begin, at most `wanted`.
function limits.room(wanted)
  if shard.PAUSED then
    return 0
  elseif shard.MAX_RUNNING then
    wanted = math.min(wanted, shard.MAX_RUNNING - call('ZCARD', shard.LEASED))
  end
  if shard.RATE then
    slide()
    if shard.LOGGED >= shard.RATE and call('ZCARD', shard.LOG) == 0 then -- the log was deleted: nothing would leave it
      call('HDEL', shard.META, 'logged')
      shard.LOGGED = 0
    end
    wanted = math.min(wanted, shard.RATE - shard.LOGGED)
  end
  return wanted
end

-- How many more a tenant may run.
function limits.tenant_room(tenant)
  return shard.TENANT_MAX and shard.TENANT_MAX - (call('HGET', shard.META, 'running:' .. tenant) or 0) or math.huge
end

function limits.log_claimed(fence, count)
  if not shard.RATE or count == 0 then
    return
  end
  local width, all, newest = math.max(shard.PER / 1000, 1), count, call('ZRANGE', shard.LOG, '-1', '-1', 'WITHSCORES')
  if newest[2] and math.floor(newest[2] / width) == math.floor(shard.NOW / width) then
    call('ZREM', shard.LOG, newest[1])
    all = all + match(newest[1], '%d+$')
  end
  call('ZADD', shard.LOG, shard.NOW_TEXT, string.format('%d:%d', fence, all))
  count_logged(count)
end
