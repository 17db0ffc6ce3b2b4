-- Quota of bytes of a tenant's saved requests and answers. It may use all of it at once, and then as much again in the
-- time for which a request is remembered (ms).
--
-- Each byte uses up its part of that time. A zset has the instant at which what a tenant has used up is over. So
-- nothing is counted off when a request is forgotten.
--
-- KEYS    3 that zset, tenant -> that instant (ms)

local RECORD = 300 -- what a request takes besides its name, which stands in two places

-- What a request itself counts for, that has no answer yet.
function request_quota.cost(field)
  return RECORD + 2 * #field
end

-- When a tenant's bytes are over; an instant that no quota leads to is of a clock that was put back.
local function over_at(tenant, now, period)
  local at = tonumber(redis.call('ZSCORE', KEYS[3], tenant) or nil) or now
  return at > now + 2 * period + 1 and now or math.max(at, now)
end

-- For how long a request with so many bytes is to wait, 0 where it may begin. One may always be begun where nothing is
-- kept.
function request_quota.wait(tenant, now, bytes, quota, period)
  local at = over_at(tenant, now, period)
  local late = at + bytes * period / quota - now - period
  return at > now and late > 0 and math.ceil(late) or 0
end

-- Counts so many bytes more, or less. An answer whose request has begun is kept, whatever that comes to.
function request_quota.take(tenant, now, bytes, quota, period)
  local at = math.min(over_at(tenant, now, period) + bytes * period / quota, now + 2 * period)
  redis.call('ZADD', KEYS[3], string.format('%.0f', at), tenant)
end
