-- What a schedule that is put meets: the one with its id that is there already, and quotas of its tenant.
--
-- KEYS    as in shard.lua, with the due set of schedules
-- ARGV    shard's

local CREATED, CHANGED, KEPT, CONFLICT, DAMAGED, OVER_SCHEDULES = 1, 2, 3, -2, -6, -18
local SCHEDULES = '*' -- the tenant of schedules

local function refusal(sid, seen, data, old, fresh)
  local state = old and series.read(old)
  if not state then
    return DAMAGED
  elseif sub(old.rest, 1, 8) == sub(fresh.rest, 1, 8) then -- sent again
    call('HSET', shard.TASKS, sid, data) -- as it is: who waits for replicas waits for what this connection wrote
    return seen == '' and CREATED or CHANGED
  elseif seen == '' then
    return KEPT
  elseif old.generation ~= tonumber(seen) then
    return CONFLICT
  end
  -- Ends of occurrences draw no generation: what became of them since the caller's look is kept.
  local new = series.read(fresh)
  new.recent, new.live, new.waiting = state.recent, state.live, state.waiting
  series.write(fresh, new)
end

local function over_quota(sid, tenant, old, fresh)
  if not old and quotas.no_schedule_left(tenant) then
    return OVER_SCHEDULES, 0
  end
  local size = weights.size_of(sid, fresh)
  local given_up = old and old.flags % weights.TWICE > 0 and weights.size_of(sid, old) or 0
  return quotas.refusal(tenant, old and 0 or 1, size - given_up, old and 0 or 1, 1, size)
end

-- The opened record that `fresh` takes the place of, if there is one; then why it does not, and for how long.
function put_schedule.look(sid, tenant, seen, data, fresh)
  local old = record.open(data)
  local reply, wait = nil, nil
  if data then
    reply = refusal(sid, seen, data, old, fresh)
  end
  if not reply and shard.QUOTAS then
    reply, wait = over_quota(sid, tenant, old, fresh)
  end
  return old, reply, wait
end

-- Where a changed schedule stands among the due. The sweep makes one due before its time where a wrong clock may have
-- computed that: a change that keeps its nominal time does not keep that from being computed again.
function put_schedule.place(sid, old, fresh, due)
  local nominal, at = '^%S+ (%S+)', tonumber(call('ZSCORE', shard.DUE[SCHEDULES], sid) or nil)
  local is_same = match(series.read(old).head, nominal) == match(series.read(fresh).head, nominal)
  return is_same and at and at < old.due and math.min(at, due) or due
end

-- Has the bytes of a schedule counted, and no longer those of the one whose place it takes.
function put_schedule.count(sid, old, fresh)
  if old then
    record.drop_body(sid, old)
  end
  if weights.counts(sid) then
    weights.count(sid, fresh, 1)
  end
end
