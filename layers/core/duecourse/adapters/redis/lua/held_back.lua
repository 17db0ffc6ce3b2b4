-- Tells what holds a tenant's due tasks back; changes nothing.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's (of tenants the one), then of the task that it is about, if any: stored id, due
-- RETURNS {now, 0 nothing, 1 a pause, 2 as many run as may, 3 as many of the tenant do, 4 the rate, 5 its target has
--         as many as it may that it has not begun, until when: 0 where that is not known}

--include prelude

local running, opens = tonumber(call('HGET', META, 'running:' .. TENANT) or 0), opens_at()

if PAUSED then
  return { NOW, 1, 0 }
elseif full() then
  return { NOW, 2, 0 }
elseif TENANT_MAX and running >= TENANT_MAX then
  return { NOW, 3, 0 }
elseif opens > NOW then
  return { NOW, 4, opens }
end
local score = ARGV[FIRST] and tonumber(call('ZSCORE', DUE[TENANT], ARGV[FIRST]) or nil)
if score and score > tonumber(ARGV[FIRST + 1]) then
  return { NOW, 5, 0 }
end
return { NOW, 0, 0 }
