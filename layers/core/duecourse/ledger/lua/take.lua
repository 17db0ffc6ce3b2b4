-- Leases one scheduled task, due or not, where the queue's limits allow it. Lapsed leases are taken back first.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard and notifications, then: stored id, lease ms where the queue has none of its own, nonce (8
--         bytes), trigger (its letter in a record)
-- RETURNS {now, bell_at, {tenant whose due set was not among KEYS...}, record or "", lease ms, its payload where that
--         stands apart}; the same nonce again gets the same lease
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

require 'notifications'
local sid, lease_ms = ARGV[shard.FIRST], shard.LEASE or tonumber(ARGV[shard.FIRST + 1])
local tenant, want, taken = tenants.tenant_of(sid), {}, ''
call('ZREM', shard.LEASED, '') -- its first write in any case
local minute = pack('>I4', math.floor(shard.NOW / numbers.MINUTE))
if sub(shard.NUMBERS, 1, 4) ~= minute then
  require 'lines'
  lines.close(minute)
end
local lapsed = leases.lapsed(limits.RECLAIM)
if lapsed[1] then
  require 'lapses'
  lapses.reclaim(lapsed, want, limits.RECLAIM_BYTES)
end

-- The lease of this very take, whose answer was lost.
local function is_taken(r)
  return r and r.status == fields.LEASE and not r.target and r.nonce == ARGV[shard.FIRST + 2]
end

local function take(data, run, due)
  call('ZREM', shard.DUE[tenant], sid)
  local _, before = leases.count_running({ [tenant] = 1 }, 1)
  local lease_end = layout.lease_end(ARGV[shard.FIRST + 2], shard.NOW, ARGV[shard.FIRST + 3])
  taken = data .. pack(layout.LEASE_FRONT, run, before + 1) .. lease_end
  call('HSET', shard.TASKS, sid, taken)
  call('ZADD', shard.LEASED, shard.NOW + lease_ms, sid)
  limits.log_claimed(before + 1, 1)
  if due <= shard.NOW then
    durations.count_late({ [shard.NOW - due] = 1 })
  end
  tenants.rehead(tenant)
end

local data = call('HGET', shard.TASKS, sid)
local r, payload = record.open(data), ''
if r and r.flags >= fields.APART then
  payload = call('HGET', shard.TASKS, (bodies.of(sid, data)))
end
local is_ready = #want == 0 and payload and r and r.status == fields.SCHEDULED and not leases.expired(r)
if is_ready and limits.room(1) > 0 and limits.tenant_room(tenant) > 0 then
  take(data, r.run + 1, r.due)
elseif payload and is_taken(r) then
  taken = data
  call('ZADD', shard.LEASED, shard.NOW + lease_ms, sid)
end
if shard.ended or shard.occurred then
  require 'announce'
  announce.ends(shard.ended)
end
numbers.write()
return { shard.NOW, bell.hang(false), want, taken, lease_ms, payload or '' }
