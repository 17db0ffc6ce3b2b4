-- What a schedule that is put meets: the one with its id that is there already, and quotas of its tenant.
--
-- KEYS    as in shard.lua, with the due set of schedules
-- ARGV    shard's

local CREATED, CHANGED, KEPT, CONFLICT, DAMAGED, OVER_SCHEDULES = 1, 2, 3, -2, -6, -18
local SCHEDULES = '*' -- the tenant of schedules

local function refusal(sid, seen, data, old, new)
  local state = old and progress.read(old)
  if not state then
    return DAMAGED
  elseif sub(old.rest, 1, 8) == sub(new.rest, 1, 8) then -- sent again
    call('HSET', shard.TASKS, sid, data) -- as it is: who waits for replicas waits for what this connection wrote
    return seen == '' and CREATED or CHANGED
  elseif seen == '' then
    return KEPT
  elseif old.generation ~= tonumber(seen) then
    return CONFLICT
  end
  -- Ends of occurrences draw no generation: what became of them since the caller's look is kept.
  local new_state = progress.read(new)
  new_state.recent, new_state.live, new_state.waiting = state.recent, state.live, state.waiting
  progress.write(new, new_state)
end

local function over_quota(sid, tenant, old, new)
  if not old and quotas.no_schedule_left(tenant) then
    return OVER_SCHEDULES, 0
  end
  local size = tenant_bytes.size_of(sid, new)
  local given_up = old and old.flags % tenant_bytes.TWICE > 0 and tenant_bytes.size_of(sid, old) or 0
  return quotas.refusal(tenant, old and 0 or 1, size - given_up, old and 0 or 1, 1, size)
end

-- The opened record that `new` takes the place of, if there is one; then why it does not, and for how long.
function put_schedule.look(sid, tenant, seen, data, new)
  local old = record.open(data)
  local reply, wait = nil, nil
  if data then
    reply = refusal(sid, seen, data, old, new)
  end
  if not reply and shard.QUOTAS then
    reply, wait = over_quota(sid, tenant, old, new)
  end
  return old, reply, wait
end

-- Where a changed schedule stands among the due. The sweep makes one due before its time where a wrong clock may have
-- computed that: a change that keeps its nominal time does not keep that from being computed again.
function put_schedule.place(sid, old, new, due)
  local nominal, at = '^%S+ (%S+)', tonumber(call('ZSCORE', shard.DUE[SCHEDULES], sid) or nil)
  local is_same = match(progress.read(old).head, nominal) == match(progress.read(new).head, nominal)
  return is_same and at and at < old.due and math.min(at, due) or due
end

-- Has the bytes of a schedule counted, and no longer those of the one whose place it takes.
function put_schedule.count(sid, old, new)
  if old then
    record.drop_body(sid, old)
  end
  if tenant_bytes.counts(sid) then
    tenant_bytes.count(sid, new, 1)
  end
end
