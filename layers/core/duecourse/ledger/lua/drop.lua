-- Forgets tasks that another shard has taken in.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then the stored ids
-- RETURNS {now, bell_at}

for at = shard.FIRST, #ARGV do
  record.delete(ARGV[at], call('HGET', shard.TASKS, ARGV[at]) or '')
end
for tenant in pairs(shard.DUE) do
  tenants.rehead(tenant)
end
return { shard.NOW, bell.hang(false) }
