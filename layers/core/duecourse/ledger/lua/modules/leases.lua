-- What the scripts that know leases share: attempts, and how many of a tenant's tasks are leased.

local function spent(r)
  return r.attempt >= unpack_struct('>I2', r.rest, fields.MAX_ATTEMPTS_AT)
end

function leases.token_of(r)
  return pack('>I6', r.fence) .. r.nonce
end

function leases.is_leased(r, token)
  return r.status == fields.LEASE and leases.token_of(r) == token
end

-- Notes a lease that is not there. Its fence may never have been drawn here, though the clock has passed it. Then this
-- server has lost its newest writes, or was stopped while another took over, and does not know that yet. It draws one,
-- so the next answer is believed. Where the store is in its caller's process, there is no other server, nor an
-- error_reply.
function leases.miss(token)
  local fence = unpack_struct('>I6', token)
  if fence > shard.FENCE and redis.error_reply then
    call('ZREM', shard.LEASED, '') -- this may be the script's first write, and memory short
    shard.behind = fence <= shard.next_fence() or shard.behind
  end
end

-- A script's answer: in its place that this server is behind, if it met such a lease.
function leases.answer(reply)
  return shard.behind and redis.error_reply('READONLY another server has given leases of which this one has no record')
    or reply
end

function leases.expired(r)
  return r.deadline > 0 and r.deadline <= shard.NOW
end

-- A tenant that waited for a place of its own may be claimed from again.
local function wake(tenant)
  local at = call('ZSCORE', shard.PARKED, tenant)
  if at then
    call('ZREM', shard.PARKED, tenant)
    call('ZADD', shard.HEADS, at, tenant)
    shard.woken = true
  end
end

-- Counts how many of each tenant's tasks are leased, which is written down while any is: tenant -> change; with so many
-- fences drawn in the same write. Answers tenant -> how many, and how many fences were drawn before.
function leases.count_running(changes, drawn)
  local tenants, fields, set, gone, running = {}, {}, {}, {}, {}
  for tenant in pairs(changes) do
    tenants[#tenants + 1], fields[#fields + 1] = tenant, 'running:' .. tenant
  end
  local known = #fields > 0 and call('HMGET', shard.META, unpack(fields)) or {}
  for i, tenant in ipairs(tenants) do
    local count = (known[i] or 0) + changes[tenant]
    if count > 0 then
      values.push(set, fields[i], values.text_of(count))
    else
      gone[#gone + 1] = fields[i]
    end
    if shard.TENANT_MAX and changes[tenant] < 0 and count < shard.TENANT_MAX then
      wake(tenant)
    end
    running[tenant] = count
  end
  if drawn > 0 then
    values.push(set, 'fence', shard.draw_fences(drawn))
    shard.entries = shard.entries .. pack(numbers.ENTRY, numbers.CLAIMED, drawn)
  end
  if #set > 0 then
    numbers.write(set)
  end
  values.in_pieces('HDEL', shard.META, gone)
  values.in_pieces('HSET', shard.META, set)
  return running, shard.FENCE - drawn
end

-- The leases that have lapsed, at most so many: {stored id, end...}.
function leases.lapsed(limit)
  return call('ZRANGEBYSCORE', shard.LEASED, '-inf', shard.NOW_TEXT, 'WITHSCORES', 'LIMIT', '0', limit)
end

-- The end of a delivery that nobody began: the run that it was to be is none.
function leases.end_delivery(r)
  r.run, r.target = r.run - 1, nil
end

-- How many ms a task waits after its attempt failed, by its own policy (ledger/task.py). The random part is of its
-- lease's token, for a script draws the same numbers each time.
function leases.backoff(r)
  local jitter, _, wait, factor, longest = unpack_struct(fields.POLICY_FORMAT, r.rest, fields.POLICY_AT)
  longest = math.floor(math.min(wait * (factor / 100) ^ math.min(r.attempt - 1, 64), longest))
  if jitter == 0 then
    return longest
  end
  local draw = (r.fence % 65536 * 40503 + unpack_struct('>I2', r.nonce)) % 65536
  return math.floor((longest + 1) * draw / 65536)
end

-- Spends an attempt: the record is scheduled at `due`, or dead. Answers whether it lives.
function leases.retry_or_die(r, due)
  if spent(r) or leases.expired(r) then
    r.status = fields.DIED
    return false
  end
  r.status, r.attempt, r.due = fields.SCHEDULED, r.attempt + 1, due
  return true
end
