-- What a schedule that is put meets: the one with its id that is there already, and quotas of its tenant.
--
-- KEYS    as in shard.lua, with the due set of schedules
-- ARGV    shard's

local CREATED, CHANGED, KEPT, CONFLICT, DAMAGED, OVER_SCHEDULES = 1, 2, 3, -2, -6, -18

-- What a change keeps of the state: who has ended since it was read, and who has not. False where it has fired since.
local function merge(new, old)
  local counts = '^%S+ %S+ (%S+ %S+ %S+)'
  if match(new.head, counts) ~= match(old.head, counts)
    or string.gsub(new.recent, '%u', '') ~= string.gsub(old.recent, '%u', '') then
    return false
  end
  new.recent, new.live, new.waiting = old.recent, old.live, old.waiting
  return true
end

local function refusal(sid, version, data, old, fresh)
  local state = old and series.read(old)
  if not state then
    return DAMAGED
  elseif sub(old.rest, 1, 8) == sub(fresh.rest, 1, 8) then -- sent again
    call('HSET', shard.TASKS, sid, data) -- as it is: who waits for replicas waits for what this connection wrote
    return version == '' and CREATED or CHANGED
  elseif version == '' then
    return KEPT
  end
  local new = series.read(fresh)
  if match(state.head, '^%S+') ~= version or not merge(new, state) then
    return CONFLICT
  end
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
function put.look(sid, tenant, version, data, fresh)
  local old = record.open(data)
  local reply, wait = nil, nil
  if data then
    reply = refusal(sid, version, data, old, fresh)
  end
  if not reply and shard.QUOTAS then
    reply, wait = over_quota(sid, tenant, old, fresh)
  end
  return old, reply, wait
end

-- Has the bytes of a schedule counted, and no longer those of the one whose place it takes.
function put.count(sid, old, fresh)
  if old then
    record.drop_body(sid, old)
  end
  if weights.counts(sid) then
    weights.count(sid, fresh, 1)
  end
end
