-- Tenants of a shard: whose a task is, and where a tenant stands by what it has due.

local SCHEDULES = '*' -- the tenant of schedules

function tenants.tenant_of(sid)
  return match(sid, '^[^/]*')
end

-- A tenant's place after its due set changed: in the ring while it is ripe and has a turn there, parked while it is,
-- else among the heads. Schedules that fire no more are no head. Answers true where it keeps its turn.
function tenants.rehead(tenant)
  local at = call('ZRANGE', shard.DUE[tenant], '0', '0', 'WITHSCORES')[2]
  if tenant == SCHEDULES and tonumber(at) == fields.NEVER then
    at = nil
  end
  if call('ZSCORE', shard.RING, tenant) then
    if at and tonumber(at) <= shard.NOW then
      return true
    end
    call('ZREM', shard.RING, tenant)
  end
  local place = shard.TENANT_MAX and call('ZSCORE', shard.PARKED, tenant) and shard.PARKED or shard.HEADS
  if at then
    call('ZADD', place, at, tenant)
  else
    call('ZREM', place, tenant)
  end
end

-- The last turn in the ring, and whose it is.
function tenants.last_turn()
  local last = call('ZRANGE', shard.RING, '-1', '-1', 'WITHSCORES')
  return tonumber(last[2]) or 0, last[1]
end
