-- Leases one scheduled task, due or not, where the queue's limits allow it. Lapsed leases are taken back first.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's and ending's, then: stored id, lease ms where the queue has none of its own, nonce (8 bytes), door (its
--         letter in a record)
-- RETURNS {now, bell_at, {tenant whose due set was not among KEYS...}, record or "", lease ms}
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

--include prelude fresh record history lease ending handout

local sid, lease_ms = ARGV[FIRST], LEASE_OF_QUEUE or tonumber(ARGV[FIRST + 1])
local tenant, want, taken = tenant_of(sid), {}, ''
call('ZREM', LEASED, '') -- its first write in any case
reclaim(RECLAIM, want, RECLAIM_BYTES)

local function take(data, run, due)
  call('ZREM', DUE[tenant], sid)
  local fence = next_fence()
  taken = data .. pack(LEASE_FRONT, run, fence) .. lease_end(ARGV[FIRST + 2], ARGV[FIRST + 3])
  call('HSET', TASKS, sid, taken)
  call('ZADD', LEASED, NOW + lease_ms, sid)
  count_running(tenant, 1)
  log_claimed(fence, 1)
  if due <= NOW then
    log_lateness({ [due] = 1 })
  end
  rehead(tenant)
end

local data = call('HGET', TASKS, sid)
local r = open(data)
if #want == 0 and r and r.status == SCHEDULED and not expired(r) and room(1) > 0 and tenant_room(tenant) > 0 then
  take(data, r.run + 1, r.due)
end
return { NOW, hang(followed), want, taken, lease_ms }
