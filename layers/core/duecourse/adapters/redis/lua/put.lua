-- Takes in tasks of another shard, as they are; one that is here already is overwritten with itself.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then for each task: stored id, when (due, or when it ended), packed record, its payload where
--         that stands apart
-- RETURNS {now, bell_at}

local PLACES = { [fields.FINISHED] = shard.DONE, [fields.CANCELLED] = shard.DONE, [fields.DIED] = shard.DEAD }

for at = shard.FIRST, #ARGV, 4 do
  local sid, data = ARGV[at], ARGV[at + 2]
  local r, field = record.open(data), bodies.of(sid, data)
  versions.meet(byte(data))
  call('HSET', shard.TASKS, sid, data)
  if field then
    bodies.count(call('HSET', shard.TASKS, field, ARGV[at + 3]))
  end
  call('ZADD', PLACES[r.status] or shard.DUE[tenants.tenant_of(sid)], ARGV[at + 1], sid)
  record.join_group(sid, r.rest)
end
for tenant in pairs(shard.DUE) do
  tenants.rehead(tenant)
end
return { shard.NOW, bell.hang(false) }
