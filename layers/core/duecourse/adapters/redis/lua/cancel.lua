-- Cancels scheduled tasks, leased ones by force; deletes dead ones.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard (of tenants the one), then: 1 where all is one step, force (1), by whom, then the stored ids
-- RETURNS {now, bell_at, {reply...}}; a reply is 0 cancelled, -1 absent, -3 leased, -4 done, -5 cancelled before; there
--         are fewer than tasks where its bytes ran out before the last, and it is not one step

local whole, forced, by = ARGV[shard.FIRST] == '1', ARGV[shard.FIRST + 1] == '1', ARGV[shard.FIRST + 2]
local changed = false

local function forget(sid, r)
  call('ZREM', shard.DEAD, sid)
  call('HDEL', shard.TASKS, sid)
  record.leave_group(sid, r.rest)
  record.drop_body(sid, r)
  return 0
end

local function cancel(sid, r)
  local tenant = tenants.tenant_of(sid)
  if r.status == fields.LEASE then
    r = force.take_away(sid, r) -- which makes of what waits to replace it the task that is cancelled
  else
    call('ZREM', shard.DUE[tenant], sid)
  end
  history.note(r, fields.DID_CANCELLED, by, r.due, 0)
  r.status, r.claimed, r.fence, r.nonce, r.last, r.trigger = fields.CANCELLED, 0, 0, layout.NO_NONCE, 0, 0
  call('ZADD', shard.DONE, shard.NOW, sid)
  call('HSET', shard.TASKS, sid, record.close(r))
  changed = true
  return 0
end

-- What cannot be read is deleted wherever it stands: where it is dead, or by force.
local function discard(sid, data)
  if not (forced or call('ZSCORE', shard.DEAD, sid)) then
    return -1
  end
  local tenant = tenants.tenant_of(sid)
  if call('ZREM', shard.LEASED, sid) == 1 then
    leases.count_running(tenant, -1)
    places.free_lost_place(sid)
  end
  call('ZREM', shard.DEAD, sid)
  call('ZREM', shard.DONE, sid)
  call('ZREM', shard.DUE[tenant], sid)
  call('HDEL', shard.TASKS, sid)
  bodies.drop({ (bodies.of(sid, data)) })
  changed = true
  return 0
end

local function answer(sid)
  local data = call('HGET', shard.TASKS, sid)
  local r = record.open(data)
  if not r then
    return data and not record.is_foreign(data) and discard(sid, data) or -1
  elseif r.status == fields.DIED then
    return forget(sid, r)
  elseif r.status == fields.SCHEDULED or (r.status == fields.LEASE and forced) then
    return cancel(sid, r)
  end
  return record.refusal(r)
end

local replies = record.each(shard.FIRST + 3, 1, whole, answer)
if changed then
  tenants.rehead(shard.TENANT)
end
return { shard.NOW, bell.hang(false), replies }
