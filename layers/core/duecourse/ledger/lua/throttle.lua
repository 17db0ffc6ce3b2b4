-- Tells why a tenant's due tasks are throttled; changes nothing.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard (of tenants the one), then of the task that it is about, if any: stored id, due, kind
-- RETURNS {now, the reason (ledger/queue.py: ThrottleReason), "" for none, until when: 0 where that is not known}

local running, opens = tonumber(call('HGET', shard.META, 'running:' .. shard.TENANT) or 0), bell.opens_at()

if shard.PAUSED then
  return { shard.NOW, 'pause', 0 }
elseif bell.full() then
  return { shard.NOW, 'max_running', 0 }
elseif shard.TENANT_MAX and running >= shard.TENANT_MAX then
  return { shard.NOW, 'tenant_max_running', 0 }
elseif opens > shard.NOW then
  return { shard.NOW, 'rate', opens }
end
local score = ARGV[shard.FIRST] and tonumber(call('ZSCORE', shard.DUE[shard.TENANT], ARGV[shard.FIRST]) or nil)
if score and score > tonumber(ARGV[shard.FIRST + 1]) then
  local foreign = call('HGET', shard.META, 'most:kind:' .. ARGV[shard.FIRST + 2])
  return { shard.NOW, foreign and 'kind' or 'target', 0 }
end
return { shard.NOW, '', 0 }
