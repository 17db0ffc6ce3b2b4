-- Takes a request for one owner, unless it has ended, another has it, or its tenant may keep no more.
--
-- KEYS    1 hash of requests, "<tenant>/<key>" to a record   2 zset of the same, by when they were first begun (ms)
--         3 zset, tenant -> when its quota is whole again (modules/request_quota.lua)
-- ARGV    1 the clock (modules/shard.lua)   2 "<tenant>/<key>"   3 fingerprint, 32 bytes   4 owner, 8 bytes
--         5 how long the owner has it (ms)   6 how long a request is remembered (ms)   7 how many bytes its tenant may
--         have kept, 0 for any number
-- RETURNS {state, answer, ms that another has it or that the tenant is to wait, when it was first begun (ms) where it
-- is
--         the owner's}; state is 0 new, 1 again (the answer is then what was noted), -1 under way, -2 ended,
--         -3 other, -4 over the quota
--
-- A record is the fingerprint, then "A" and the answer. Of a request that has not ended it is the fingerprint, then
-- "U", the owner (8 bytes), until when it has the request (ms), and behind a space what an owner has noted, if any did.

local now = clock.NOW
local field, fingerprint, owner, period, quota = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[6]), tonumber(ARGV[7])
local until_at = string.format('%.0f', now + ARGV[5])

local function begin()
  if quota > 0 then
    local tenant, bytes = match(field, '^[^/]*'), request_quota.cost(field)
    local wait = request_quota.wait(tenant, now, bytes, quota, period)
    if wait > 0 then
      return { -4, '', wait, 0 }
    end
    request_quota.take(tenant, now, bytes, quota, period)
  end
  redis.call('HSET', KEYS[1], field, fingerprint .. 'U' .. owner .. until_at)
  redis.call('ZADD', KEYS[2], string.format('%.0f', now), field)
  return { 0, '', 0, now }
end

local begun = tonumber(redis.call('ZSCORE', KEYS[2], field) or nil)
local record = begun and begun > now - period and redis.call('HGET', KEYS[1], field)
if not record then
  return begin()
end
if sub(record, 1, 32) ~= fingerprint then
  return { -3, '', 0, 0 }
end
if sub(record, 33, 33) == 'A' then
  return { -2, sub(record, 34), 0, 0 }
end
local held_until, noted = match(record, '^(%d+)(.*)$', 42)
local left = tonumber(held_until) - now
if left > 0 and sub(record, 34, 41) ~= owner then
  return { -1, '', left, 0 }
end
-- Begun by this very call, whose reply was lost: nothing was done since, so what stands is not of this request.
if sub(record, 34, 41) == owner and noted == '' and held_until == string.format('%.0f', begun + ARGV[5]) then
  return { 0, '', 0, begun }
end
redis.call('HSET', KEYS[1], field, fingerprint .. 'U' .. owner .. until_at .. noted)
return { 1, sub(noted, 2), 0, begun }
