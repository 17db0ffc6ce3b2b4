-- What the scripts share that forget shards: for how long one has had neither tasks nor settings.

-- How the queue is set; a queue of several shards keeps each, for that is where its number is found. What a query set
-- by default is set anew by the next.
local SET = {
  'paused', 'rate_count', 'priority', 'retention', 'lease', 'tenant_max_pending', 'tenant_max_bytes',
  'tenant_adds_per_minute', 'tenant_max_schedules', 'shards',
}

local function is_set()
  for _, value in pairs(call('HMGET', shard.META, unpack(SET))) do
    if value then
      return true
    end
  end
  local defaulted = tonumber(call('HGET', shard.META, 'defaulted') or 0)
  return (shard.MAX_RUNNING and defaulted < 1) or (shard.TENANT_MAX and defaulted < 2)
end

-- In ms; -1 where there is a task or a setting. A shard that never drew a fence was registered and nothing was ever
-- added. The time counts from the first look that found neither, as long as no add draws a fence: then anew.
function idleness.idle_ms()
  if call('HLEN', shard.TASKS) > 0 or is_set() then
    return -1
  end
  local fence = call('HGET', shard.META, 'fence') or '0'
  local was, since = match(call('HGET', shard.META, 'idle') or '', '^(%d+):(%d+)$')
  if was == fence then
    return shard.NOW - since
  end
  call('ZREM', shard.LEASED, '') -- this may be the script's first write, and memory short
  call('HSET', shard.META, 'idle', fence .. ':' .. shard.NOW_TEXT)
  return 0
end
