-- Cancels scheduled tasks, leased ones by force; deletes dead ones.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's (of tenants the one), then: 1 where all is one step, force (1), by whom, then the stored ids
-- RETURNS {now, bell_at, {reply...}}; a reply is 0 cancelled, -1 absent, -3 leased, -4 done, -5 cancelled before; there
--         are fewer than tasks where its bytes ran out before the last, and it is not one step

--include prelude fresh record history lease force

local whole, force, by = ARGV[FIRST] == '1', ARGV[FIRST + 1] == '1', ARGV[FIRST + 2]
local REFUSALS = { [LEASE] = -3, [FINISHED] = -4, [CANCELLED] = -5 }
local replies, changed = {}, false

local function forget(sid, r)
  call('ZREM', DEAD, sid)
  call('HDEL', TASKS, sid)
  leave_group(sid, r.rest)
  return 0
end

local function cancel(sid, r)
  local tenant = tenant_of(sid)
  if r.status == LEASE then
    r = take_away(sid, r) -- which makes of what waits to replace it the task that is cancelled
  else
    call('ZREM', DUE[tenant], sid)
  end
  note(r, CANCELLED_, by, r.due, 0)
  r.status, r.claimed, r.fence, r.nonce, r.last, r.door = CANCELLED, 0, 0, NO_NONCE, 0, 0
  call('ZADD', DONE, NOW, sid)
  call('HSET', TASKS, sid, close(r))
  changed = true
  return 0
end

-- What cannot be read is deleted wherever it stands: where it is dead, or by force.
local function discard(sid)
  if not (force or call('ZSCORE', DEAD, sid)) then
    return -1
  end
  local tenant = tenant_of(sid)
  if call('ZREM', LEASED, sid) == 1 then
    count_running(tenant, -1)
    free_lost_place(sid)
  end
  call('ZREM', DEAD, sid)
  call('ZREM', DONE, sid)
  call('ZREM', DUE[tenant], sid)
  call('HDEL', TASKS, sid)
  changed = true
  return 0
end

local function answer(sid)
  local data = call('HGET', TASKS, sid)
  local r = open(data)
  if not r then
    return data and not is_foreign(data) and discard(sid) or -1
  elseif r.status == DIED then
    return forget(sid, r)
  elseif r.status == SCHEDULED or (r.status == LEASE and force) then
    return cancel(sid, r)
  end
  return REFUSALS[r.status]
end

for at = FIRST + 3, #ARGV do
  if weight >= BYTES and not whole then
    break
  end
  replies[#replies + 1] = answer(ARGV[at])
end
if changed then
  rehead(TENANT)
end
return { NOW, hang(false), replies }
