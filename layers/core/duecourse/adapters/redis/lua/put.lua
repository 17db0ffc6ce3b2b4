-- Takes in tasks of another shard, as they are; one that is here already is overwritten with itself.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then for each task: stored id, when (due, or when it ended), packed record
-- RETURNS {now, bell_at}

--include prelude fresh record

local PLACES = { [FINISHED] = DONE, [CANCELLED] = DONE, [DIED] = DEAD }

for at = FIRST, #ARGV, 3 do
  local sid, r = ARGV[at], open(ARGV[at + 2])
  call('HSET', TASKS, sid, ARGV[at + 2])
  call('ZADD', PLACES[r.status] or DUE[tenant_of(sid)], ARGV[at + 1], sid)
  join_group(sid, r.rest)
end
for tenant in pairs(DUE) do
  rehead(tenant)
end
return { NOW, hang(false) }
