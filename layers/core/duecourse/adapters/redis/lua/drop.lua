-- Forgets tasks that another shard has taken in.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then the stored ids
-- RETURNS {now, bell_at}

for at = shard.FIRST, #ARGV do
  local sid = ARGV[at]
  call('ZREM', shard.DUE[tenants.tenant_of(sid)], sid)
  call('ZREM', shard.DONE, sid)
  call('ZREM', shard.DEAD, sid)
  local r = record.open(call('HGET', shard.TASKS, sid))
  if r then
    record.leave_group(sid, r.rest)
    record.drop_body(sid, r)
  end
  call('HDEL', shard.TASKS, sid)
end
for tenant in pairs(shard.DUE) do
  tenants.rehead(tenant)
end
return { shard.NOW, bell.hang(false) }
