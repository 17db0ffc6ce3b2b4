-- Takes in tasks of another shard, or of an export, as they are.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: 1 to leave a task alone that is here already, which else is overwritten with itself;
--         then for each task: stored id, when (due, or when it ended), packed record, its payload where that stands
--         apart
-- RETURNS {now, bell_at, how many were taken in}

local PLACES = { [fields.FINISHED] = shard.DONE, [fields.CANCELLED] = shard.DONE, [fields.DIED] = shard.DEAD }

local function take_in(sid, when, data, payload)
  local r, field = record.open(data), bodies.of(sid, data)
  if call('HSET', shard.TASKS, sid, data) == 1 and r.flags % tenant_bytes.TWICE > 0 then
    tenant_bytes.count(sid, r, 1)
  end
  if field then
    bodies.count(call('HSET', shard.TASKS, field, payload))
  end
  call('ZADD', PLACES[r.status] or shard.DUE[tenants.tenant_of(sid)], when, sid)
  record.join_group(sid, r.rest)
end

local leave_alone, taken = ARGV[shard.FIRST] == '1', 0
for at = shard.FIRST + 1, #ARGV, 4 do
  local sid = ARGV[at]
  if not leave_alone or call('HEXISTS', shard.TASKS, sid) == 0 then
    take_in(sid, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
    taken = taken + 1
  end
end
for tenant in pairs(shard.DUE) do
  tenants.rehead(tenant)
end
return { shard.NOW, bell.hang(false), taken }
