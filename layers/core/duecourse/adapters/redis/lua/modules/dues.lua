-- Schedules that are due, for whoever fires them.

local SCHEDULES = '*' -- the tenant of schedules
local MOST = 200 -- as ports/schedules.py

-- The longest due first, as far as a script may read: {stored id, record, its payload where that is apart, or ""...}.
-- Where their due set is not among KEYS, their tenant is added to `want`.
function dues.read(want)
  local found = {}
  if not shard.DUE[SCHEDULES] then
    want[#want + 1] = SCHEDULES
    return found
  end
  for _, sid in ipairs(call('ZRANGEBYSCORE', shard.DUE[SCHEDULES], '-inf', shard.NOW_TEXT, 'LIMIT', '0', MOST)) do
    local data = call('HGET', shard.TASKS, sid)
    if data then
      local field = bodies.of(sid, data)
      local payload = field and call('HGET', shard.TASKS, field) or ''
      shard.weight = shard.weight + #data + #payload
      values.push(found, sid, data)
      found[#found + 1] = payload
    end
    if shard.weight >= record.BYTES then
      break
    end
  end
  return found
end
