-- What the scripts that begin leases share: how many may begin, the rate's log, the lateness, a lease behind a record.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's
-- RETURNS nothing

--exports RECLAIM RECLAIM_BYTES LEASE_OF_QUEUE PRIORITY LEASE_FRONT lease_end room tenant_room log_claimed log_lateness

RECLAIM, RECLAIM_BYTES = 500, 1000000 -- lapsed leases that are taken back first
local match = string.match
local SLOT, SLOTS = 300000, 13 -- of domain/lateness.py

local own = call('HMGET', META, 'lease', 'priority', 'late_slot')
local LATE_SLOT = tonumber(own[3] or nil)
LEASE_OF_QUEUE, PRIORITY = tonumber(own[1] or nil), tonumber(own[2] or -1)

-- A lease as it stands behind a record, record.lua's BEGUN_FORMAT in two halves: run and fence, then what is one for all
-- that a script leases. To make the record's front anew would cost twice as much.
LEASE_FRONT = '>I4I6'

function lease_end(nonce, door)
  return nonce .. pack('>I6', NOW) .. door .. 'L'
end

-- The rate's log counts claims, "fence:count" at the time of the newest that it counts: those of one thousandth of the
-- window are one entry, so that neither its length nor what leaves it at once grows with the rate.
local ENTRIES = 2000 -- of a log that is longer, for it was written when each claim was one

-- The rate's window moves on: what has left it is forgotten. Where the clock was put back, what is ahead of it counts
-- from now, or the queue would be held for as long as that step.
local function slide()
  local gone, count = call('ZRANGEBYSCORE', LOG, '-inf', NOW - PER, 'LIMIT', 0, ENTRIES), 0
  for _, entry in ipairs(gone) do
    count = count + match(entry, '%d+$')
  end
  if count > 0 then
    call('ZREM', LOG, unpack(gone))
    LOGGED = call('HINCRBY', META, 'logged', -count)
  end
  local ahead, members = call('ZRANGEBYSCORE', LOG, '(' .. NOW_TEXT, '+inf', 'LIMIT', 0, ENTRIES), {}
  for _, entry in ipairs(ahead) do
    push(members, NOW_TEXT, entry)
  end
  in_pieces('ZADD', LOG, members)
end

-- How many leases may begin, at most `wanted`.
function room(wanted)
  if PAUSED then
    return 0
  elseif MAX_RUNNING then
    wanted = math.min(wanted, MAX_RUNNING - call('ZCARD', LEASED))
  end
  if RATE then
    slide()
    wanted = math.min(wanted, RATE - LOGGED)
  end
  return wanted
end

-- How many more a tenant may run.
function tenant_room(tenant)
  return TENANT_MAX and TENANT_MAX - (call('HGET', META, 'running:' .. tenant) or 0) or math.huge
end

function log_claimed(fence, count)
  if not RATE or count == 0 then
    return
  end
  local width, all, newest = math.max(PER / 1000, 1), count, call('ZRANGE', LOG, '-1', '-1', 'WITHSCORES')
  if newest[2] and math.floor(newest[2] / width) == math.floor(NOW / width) then
    call('ZREM', LOG, newest[1])
    all = all + match(newest[1], '%d+$')
  end
  call('ZADD', LOG, NOW_TEXT, string.format('%d:%d', fence, all))
  LOGGED = call('HINCRBY', META, 'logged', count)
end

-- Slots that were left out hold what is over an hour old, and so does the one that begins.
local function begin_slot(slot)
  local stale, fields = {}, {}
  for over = math.max(LATE_SLOT or 0, slot - SLOTS) + 1, slot do
    stale[over % SLOTS .. ''] = true
  end
  for _, field in ipairs(call('HKEYS', LATE)) do
    if stale[string.match(field, '^%d+')] then
      fields[#fields + 1] = field
    end
  end
  in_pieces('HDEL', LATE, fields)
  call('HSET', META, 'late_slot', slot)
end

local function bucket_of(late)
  if late <= 0 then
    return 0
  end
  local fraction, exponent = math.frexp(late)
  return exponent * 8 + math.floor((fraction - 0.5) * 16)
end

-- Counts what was claimed by how late it was: due time -> how many.
function log_lateness(claimed)
  local slot, buckets = math.floor(NOW / SLOT), {}
  if next(claimed) and slot ~= LATE_SLOT then
    begin_slot(slot)
  end
  for due, count in pairs(claimed) do
    local bucket = bucket_of(NOW - due)
    buckets[bucket] = (buckets[bucket] or 0) + count
  end
  for bucket, count in pairs(buckets) do
    call('HINCRBY', LATE, slot % SLOTS .. ':' .. bucket, count)
  end
end
