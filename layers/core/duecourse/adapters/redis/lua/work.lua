-- Begins tasks that were handed over: the lease of each delivery becomes that of its run.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard and endings, then: lease ms from now, how many tasks one event of this target is to have (0
--         where its function does not know), then for each: stored id, token of the delivery (14 bytes), nonce of the
--         worker (8 bytes), which makes the new token
-- RETURNS {now, bell_at, {token, or "" where it is lost, run, how late it begins (ms)...}, end of the leases}, fewer
--         than deliveries where its bytes ran out; the same delivery and nonce again get the same token
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local lease_ms, each = tonumber(ARGV[shard.FIRST]), tonumber(ARGV[shard.FIRST + 1])
local ends_at, answers, late = shard.NOW + lease_ms, {}, {}
local works = {} -- kind of what begins -> its target
call('ZREM', shard.LEASED, '')

-- It dies as one past its deadline that is claimed.
local function expire(sid, r)
  local tenant = tenants.tenant_of(sid)
  record.remember(r, fields.RAN_EXPIRED, 'past its deadline')
  places.free_place(sid, r.target)
  leases.end_delivery(r)
  r.status, r.last = fields.DIED, 0
  call('ZREM', shard.LEASED, sid)
  leases.count_running({ [tenant] = -1 }, 0)
  local notifications = endings.notifications_of(sid, r)
  local after = record.has_successor(r) and history.succeed(sid, r) or r
  record.put(sid, after)
  tenants.rehead(tenant)
  endings.notify(notifications)
end

local function begin(sid, r, token, nonce)
  places.free_place(sid, r.target)
  works[record.kind_of(r.rest)] = r.target
  local ms = math.max(shard.NOW - r.due, 0)
  late[ms] = (late[ms] or 0) + 1
  r.target, r.delivery, r.fence, r.nonce, r.claimed = nil, token, shard.next_fence(), nonce, shard.NOW
  call('HSET', shard.TASKS, sid, record.close(r))
end

for at = shard.FIRST + 2, #ARGV, 3 do
  if shard.weight >= record.BYTES then
    break
  end
  local sid, token, nonce = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local r = record.open(call('HGET', shard.TASKS, sid))
  if r and r.target and leases.is_leased(r, token) then
    if leases.expired(r) then
      expire(sid, r)
    else
      begin(sid, r, token, nonce)
    end
  end
  -- In a ledger of an earlier version it was handed over under a lease like any other: that is the worker's then.
  local plain = shard.LAYOUT < 5 and r and not r.target and leases.is_leased(r, token)
  if plain or (r and r.status == fields.LEASE and r.delivery == token and r.nonce == nonce) then
    call('ZADD', shard.LEASED, ends_at, sid)
    values.push(answers, leases.token_of(r), r.run)
    answers[#answers + 1] = math.max(r.claimed - r.due, 0)
  else
    values.push(answers, '', 0)
    answers[#answers + 1] = 0
  end
end
lateness.count(late)
for kind, target in pairs(works) do
  busy.begins(target, kind, ends_at, each)
end
if shard.ended or shard.occurred then
  require 'ends'
  ends.tell(shard.ended)
end
return { shard.NOW, bell.hang(false), answers, ends_at }
