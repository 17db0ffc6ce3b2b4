-- What the scripts that know leases share: attempts, and how many of a tenant's tasks are leased.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's
-- RETURNS nothing

--exports end_delivery token_of is_held expired count_running count_all_running backoff retry_or_die

local function spent(r)
  return r.attempt >= unpack_struct('>I2', r.rest, 10)
end

function token_of(r)
  return pack('>I6', r.fence) .. r.nonce
end

function is_held(r, token)
  return r.status == LEASE and token_of(r) == token
end

function expired(r)
  return r.deadline > 0 and r.deadline <= NOW
end

-- A tenant that waited for a place of its own may be claimed from again.
local function wake(tenant)
  local at = call('ZSCORE', PARKED, tenant)
  if at then
    call('ZREM', PARKED, tenant)
    call('ZADD', HEADS, at, tenant)
    woken = true
  end
end

-- How many of a tenant's tasks are leased, which is written down while any is. Answers it.
function count_running(tenant, change)
  local running = call('HINCRBY', META, 'running:' .. tenant, change)
  if running <= 0 then
    call('HDEL', META, 'running:' .. tenant)
  end
  if TENANT_MAX and change < 0 and running < TENANT_MAX then
    wake(tenant)
  end
  return running
end

-- The same for many tenants at once: tenant -> change. Answers tenant -> how many.
function count_all_running(changes)
  local tenants, fields, set, gone, running = {}, {}, {}, {}, {}
  for tenant in pairs(changes) do
    tenants[#tenants + 1], fields[#fields + 1] = tenant, 'running:' .. tenant
  end
  for i, count in ipairs(call('HMGET', META, unpack(fields))) do
    local tenant = tenants[i]
    count = (count or 0) + changes[tenant]
    if count > 0 then
      push(set, fields[i], text_of(count))
    else
      gone[#gone + 1] = fields[i]
    end
    if TENANT_MAX and changes[tenant] < 0 and count < TENANT_MAX then
      wake(tenant)
    end
    running[tenant] = count
  end
  in_pieces('HDEL', META, gone)
  in_pieces('HSET', META, set)
  return running
end

-- The end of a delivery that nobody began: the run that it was to be is none.
function end_delivery(r)
  r.run, r.target = r.run - 1, nil
end

-- How many ms a task waits after its attempt failed, by its own policy (domain/backoff.py): the random part is of its lease's
-- token, for a script draws the same numbers each time.
function backoff(r)
  local jitter, _, wait, factor, longest = unpack_struct('>BI2I4I2I4', r.rest, 9)
  longest = math.floor(math.min(wait * (factor / 100) ^ math.min(r.attempt - 1, 64), longest))
  if jitter == 0 then
    return longest
  end
  local draw = (r.fence % 65536 * 40503 + unpack_struct('>I2', r.nonce)) % 65536
  return math.floor((longest + 1) * draw / 65536)
end

-- Spends an attempt: the record is scheduled at `due`, or dead. Answers whether it lives.
function retry_or_die(r, due)
  if spent(r) or expired(r) then
    r.status = DIED
    return false
  end
  r.status, r.attempt, r.due = SCHEDULED, r.attempt + 1, due
  return true
end
