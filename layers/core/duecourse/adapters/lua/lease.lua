-- What the scripts that know leases share: attempts, and how many of a tenant's tasks are leased.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's
-- RETURNS nothing

local function spent(r)
  return r.attempt >= unpack_struct('>I2', r.rest, 10)
end

local function expired(r)
  return r.deadline > 0 and r.deadline <= NOW
end

-- How many of a tenant's tasks are leased, which is written down while any is.
local function count_running(tenant, change)
  if call('HINCRBY', META, 'running:' .. tenant, change) <= 0 then
    call('HDEL', META, 'running:' .. tenant)
  end
end

-- Spends an attempt: the record is scheduled at `due`, or dead. Answers whether it lives.
local function retry_or_die(r, due)
  if spent(r) or expired(r) then
    r.status = DIED
    return false
  end
  r.status, r.attempt, r.due = SCHEDULED, r.attempt + 1, due
  return true
end
