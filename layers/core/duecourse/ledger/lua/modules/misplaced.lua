-- Tasks that stand elsewhere than their records say: a script was rejected half way, or another program changed a key.
-- A record is the truth: its status and due time say in which one place its task stands.
--
-- KEYS    as in shard.lua
-- ARGV    shard's

local LONG_LEASE = 900000 -- ms: no function runs for longer, and a worker extends its lease

local touched, missing -- tenants whose due sets changed, and those whose due sets are not among KEYS

function misplaced.begin()
  touched, missing = {}, {}
end

-- A tenant's due set; nil where it is not among KEYS, which the next step has.
function misplaced.due_set(tenant)
  if not shard.DUE[tenant] then
    missing[tenant] = true
  end
  return shard.DUE[tenant]
end

-- Notes that a tenant's due set changed.
function misplaced.touch(tenant)
  touched[tenant] = true
end

-- Puts the tenants in their places whose due sets changed; adds those whose due sets are wanted.
function misplaced.finish(want)
  for tenant in pairs(touched) do
    tenants.rehead(tenant)
  end
  for tenant in pairs(missing) do
    want[#want + 1] = tenant
  end
end

-- Where a task stands by its record, and by which score if it is not there.
local function place_of(sid, r, lease_ms)
  if r.status == fields.SCHEDULED then
    return shard.DUE[tenants.tenant_of(sid)], record.due_score(sid, r.due)
  elseif r.status == fields.LEASE then
    return shard.LEASED, values.text_of(shard.NOW + lease_ms)
  end
  return r.status == fields.DIED and shard.DEAD or shard.DONE, shard.NOW_TEXT
end

-- Whether a scheduled task may stand at this score. Notifications come before others, a schedule may be looked at
-- early, and what waits for a place at its target stands later.
local function may_stand_at(sid, r, at)
  if at < r.due then
    return record.is_notification(sid) or byte(sid) == record.SCHEDULE
  end
  return at == r.due or places.is_aside(sid, r.due, at)
end

local function put_in_group(sid, r)
  local group = record.group_of(r.rest)
  if byte(sid) == record.SCHEDULE then
    record.join_schedules(sid)
  elseif group ~= '' and not record.is_notification(sid) then
    return call('ZADD', shard.GROUPS, '0', layout.group_member(sid, group))
  end
  return 0
end

-- Puts a task in its place and nowhere else, and in its group. Answers how many entries were wrong or not there.
function misplaced.put_right(sid, r, lease_ms)
  local place, score = place_of(sid, r, lease_ms)
  local at = tonumber(call('ZSCORE', place, sid) or nil)
  local wrong = 0
  if not at or (r.status == fields.SCHEDULED and not may_stand_at(sid, r, at)) then
    call('ZADD', place, score, sid)
    wrong = 1
  end
  for _, other in ipairs({ shard.DUE[tenants.tenant_of(sid)], shard.LEASED, shard.DONE, shard.DEAD }) do
    if other ~= place then
      wrong = wrong + call('ZREM', other, sid)
    end
  end
  return wrong + put_in_group(sid, r)
end

-- The same in a pass of the sweep, of a record as it stands. Answers whether it is to be looked at again.
function misplaced.look(sid, data)
  local r, tenant = record.open(data), tenants.tenant_of(sid)
  if not r then
    return false
  elseif not misplaced.due_set(tenant) then
    return true
  end
  misplaced.put_right(sid, r, LONG_LEASE)
  misplaced.touch(tenant)
  return false
end

-- Asks for such a pass, or for another where one is under way. First it tries what a pass does: one that is rejected
-- would end each sweep.
function misplaced.ask()
  for _, key in ipairs({ shard.LEASED, shard.DONE, shard.DEAD, shard.GROUPS, shard.HEADS, shard.RING, shard.PARKED }) do
    call('ZADD', key, '0', '')
    call('ZREM', key, '')
  end
  call('HDEL', shard.META, '')
  local known = call('HMGET', shard.META, 'rewrite', 'misplaced')
  local place = known[1] and known[2] and match(known[1], '^%d+') .. '+' or '0'
  call('HSET', shard.META, 'rewrite', place, 'misplaced', '1')
end
