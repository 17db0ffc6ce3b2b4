-- Begins tasks that were handed over: the lease of each delivery becomes that of its run.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's and ending's, then: lease ms from now, then for each: stored id, token of the delivery (14 bytes), nonce
--         of the worker (8 bytes), which makes the new token
-- RETURNS {now, bell_at, {token, or "" where it is lost, run...}, end of the leases}, fewer than deliveries where its bytes
--         ran out; the same delivery and nonce again get the same token
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

--include prelude fresh record history lease ending

local lease_ms = tonumber(ARGV[FIRST])
local ends_at, answers = NOW + lease_ms, {}
call('ZREM', LEASED, '')

-- It dies as one past its deadline that is claimed.
local function bury(sid, r)
  local tenant = tenant_of(sid)
  remember(r, 69, 'past its deadline')
  free_place(sid, r.target)
  end_delivery(r)
  r.status, r.last = DIED, 0
  call('ZREM', LEASED, sid)
  count_running(tenant, -1)
  local told, after = tell_of(sid, r), has_successor(r) and succeed(sid, r) or r
  if after.status == SCHEDULED then
    call('ZADD', DUE[tenant], after.due, sid)
  else
    call('ZADD', DEAD, NOW, sid)
  end
  call('HSET', TASKS, sid, close(after))
  rehead(tenant)
  follow(told)
end

local function begin(sid, r, token, nonce)
  free_place(sid, r.target)
  r.target, r.delivery, r.fence, r.nonce, r.claimed = nil, token, next_fence(), nonce, NOW
  call('HSET', TASKS, sid, close(r))
end

for at = FIRST + 1, #ARGV, 3 do
  if weight >= BYTES then
    break
  end
  local sid, token, nonce = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local r = open(call('HGET', TASKS, sid))
  if r and r.target and is_held(r, token) then
    if expired(r) then
      bury(sid, r)
    else
      begin(sid, r, token, nonce)
    end
  end
  if r and r.status == LEASE and r.delivery == token and r.nonce == nonce then
    call('ZADD', LEASED, ends_at, sid)
    push(answers, token_of(r), r.run)
  else
    push(answers, '', 0)
  end
end
return { NOW, hang(followed), answers, ends_at }
