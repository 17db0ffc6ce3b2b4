-- What the scripts share that forget shards: for how long one has had neither tasks nor settings.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's
-- RETURNS nothing

--exports idle_ms

-- How the queue is set; a queue of several shards keeps each, for its number is told there. What a query set by default is
-- set anew by the next.
local SET = { 'paused', 'rate_count', 'tenant_max_running', 'priority', 'retention', 'lease', 'shards' }

local function is_set()
  for _, value in pairs(call('HMGET', META, unpack(SET))) do
    if value then
      return true
    end
  end
  return MAX_RUNNING and not call('HGET', META, 'defaulted')
end

-- In ms; -1 where there is a task or a setting. It is counted from the first look that found neither, as long as no add
-- draws a fence: then anew.
function idle_ms()
  if call('HLEN', TASKS) > 0 or is_set() then
    return -1
  end
  local fence = call('HGET', META, 'fence') or '0'
  local was, since = string.match(call('HGET', META, 'idle') or '', '^(%d+):(%d+)$')
  if was == fence then
    return NOW - since
  end
  call('ZREM', LEASED, '') -- this may be the script's first write, and memory short
  call('HSET', META, 'idle', fence .. ':' .. NOW_TEXT)
  return 0
end
