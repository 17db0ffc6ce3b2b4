-- Forgets tasks that another shard has taken in.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then the stored ids
-- RETURNS {now, bell_at}

--include prelude fresh record

for at = FIRST, #ARGV do
  local sid = ARGV[at]
  call('ZREM', DUE[tenant_of(sid)], sid)
  call('ZREM', DONE, sid)
  call('ZREM', DEAD, sid)
  local r = open(call('HGET', TASKS, sid))
  if r then
    leave_group(sid, r.rest)
  end
  call('HDEL', TASKS, sid)
end
for tenant in pairs(DUE) do
  rehead(tenant)
end
return { NOW, hang(false) }
