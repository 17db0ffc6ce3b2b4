-- Cancels scheduled tasks, leased ones by force; deletes dead ones.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then: force (1), by whom, then the stored ids
-- RETURNS {now, bell_at, {reply...}}; a reply is 0 cancelled, -1 absent, -3 leased, -4 done, -5 cancelled before

--include prelude fresh record history lease

local force, by = ARGV[FIRST] == '1', ARGV[FIRST + 1]
local REFUSALS = { [LEASE] = -3, [FINISHED] = -4, [CANCELLED] = -5 }
local replies = {}

local function forget(sid, r)
  call('ZREM', DEAD, sid)
  call('HDEL', TASKS, sid)
  leave_group(sid, r.rest)
  return 0
end

local function cancel(sid, r)
  local tenant = tenant_of(sid)
  if r.status == LEASE then
    call('ZREM', LEASED, sid)
    count_running(tenant, -1)
    remember(r, TAKEN, '')
    if has_successor(r) then
      drop_successor(sid, r)
    end
  else
    call('ZREM', DUE[tenant], sid)
    rehead(tenant)
  end
  note(r, CANCELLED_, by, r.due, 0)
  r.status, r.claimed, r.fence, r.nonce, r.last, r.door = CANCELLED, 0, 0, NO_NONCE, 0, 0
  call('ZADD', DONE, NOW, sid)
  call('HSET', TASKS, sid, close(r))
  return 0
end

local function answer(sid)
  local r = open(call('HGET', TASKS, sid))
  if not r then
    return -1
  elseif r.status == DIED then
    return forget(sid, r)
  elseif r.status == SCHEDULED or (r.status == LEASE and force) then
    return cancel(sid, r)
  end
  return REFUSALS[r.status]
end

for at = FIRST + 2, #ARGV do
  replies[#replies + 1] = answer(ARGV[at])
end
return { NOW, hang(false), replies }
