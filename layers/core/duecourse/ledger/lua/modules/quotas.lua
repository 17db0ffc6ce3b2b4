-- Whether a tenant may have more tasks: its quotas in this shard, which hold for what callers add and replay. What is
-- scheduled again, moved, or a notification is never rejected. The tenant "-" has no quota. Each quota is the queue's
-- own, else the deployment's for this tenant (modules/settings.lua).
--
-- Each add uses up its part of a minute, and `adds:<tenant>` of meta is when what a tenant has used up is over. So as
-- many may come at once as the quota says, and then one by one. `adds` is where a sweep looks on for such that are
-- past.
--
-- KEYS    as in shard.lua
-- ARGV    shard's

local MINUTE = 60000
local LOOKED_AT = 500 -- fields of meta, in one sweep
local OVER_PENDING, OVER_BYTES, OVER_ADDS = -12, -13, -14
local BEYOND = -14 -- and less: of the first, second and third quota

-- The deployment's quotas of a tenant, as its line has them: of pending tasks, bytes, adds, schedules.
local function defaults_of(tenant, text)
  if text then
    local from = string.find(text, '\n' .. tenant .. ' ', 1, true) or string.find(text, '\n- ', 1, true)
    return match(text, '^\n%S+ (%S+) (%S+) (%S+) ?([^\n]*)', from)
  end
end

-- This shard's part of each of a tenant's quotas, nil where there is none: of pending tasks, bytes, adds.
local function limits_of(tenant, own)
  local pending, bytes, adds = defaults_of(tenant, own[4])
  return shard.part_of(own[1] or pending), shard.part_of(own[2] or bytes), shard.part_of(own[3] or adds)
end

-- Takes so many adds from a tenant's minute. Answers for how long it must wait where they are not there, else 0.
local function take_adds(tenant, part, past, count)
  local least = tonumber(past or nil) or 0
  if least < shard.NOW or least > shard.NOW + MINUTE + 1 then -- the clock was put back
    least = shard.NOW
  end
  local after = least + count * MINUTE / part
  if after > shard.NOW + MINUTE + 0.5 then -- its parts are fractions
    return math.ceil(after - shard.NOW - MINUTE)
  end
  call('HSET', shard.META, 'adds:' .. tenant, string.format('%.3f', after))
  if not past then
    call('HSETNX', shard.META, 'adds', '0')
  end
  return 0
end

-- Answers nil where the tenant may have so many more pending tasks, with so many bytes more, that come of so many adds.
-- Else it answers the reply, and for how many ms the tenant is to wait, 0 where that is not known. No wait makes room
-- for what is beyond a whole quota: it must hold so many tasks and bytes, some of which may be there, or take the place
-- of others.
function quotas.refusal(tenant, pending, bytes, adds, tasks, size)
  if not shard.QUOTAS or tenant == '-' then
    return nil
  end
  local own = call('HMGET', shard.META, 'tenant_max_pending', 'tenant_max_bytes', 'tenant_adds_per_minute',
    'default_quotas', 'running:' .. tenant, 'bytes:' .. tenant, 'adds:' .. tenant)
  local max_pending, max_bytes, a_minute = limits_of(tenant, own)
  if max_pending and tasks > max_pending then
    return BEYOND - 1, 0
  elseif max_bytes and size > max_bytes then
    return BEYOND - 2, 0
  elseif a_minute and adds > a_minute then
    return BEYOND - 3, 0
  elseif max_pending and pending > 0 and max_pending - (own[5] or 0) - pending < call('ZCARD', shard.DUE[tenant]) then
    return OVER_PENDING, 0
  elseif max_bytes and bytes > 0 and max_bytes - (own[6] or 0) - bytes < 0 then
    return OVER_BYTES, 0
  end
  local wait = a_minute and adds > 0 and take_adds(tenant, a_minute, own[7], adds) or 0
  if wait > 0 then
    return OVER_ADDS, wait
  end
end

-- Answers whether a tenant has as many schedules as it may, with those whose span is being filled.
function quotas.no_schedule_left(tenant)
  if tenant == '-' or not match(shard.QUOTAS or '', 's') then
    return false
  end
  local own = call('HMGET', shard.META, 'tenant_max_schedules', 'default_quotas')
  local _, _, _, default = defaults_of(tenant, own[2])
  local most, index = shard.part_of(own[1] or default), '*/' .. tenant
  return most and call('ZLEXCOUNT', shard.GROUPS, '[' .. index .. '\0', '(' .. index .. '\1') >= most
end

-- Forgets the minutes that are past, a bounded step.
function quotas.forget_adds()
  local cursor = call('HGET', shard.META, 'adds')
  if not cursor then
    return
  end
  local found, past, others = call('HSCAN', shard.META, cursor, 'COUNT', LOOKED_AT), {}, false
  for i = 1, #found[2], 2 do
    if sub(found[2][i], 1, 5) == 'adds:' then
      local at = tonumber(found[2][i + 1]) or 0
      local is_past = at <= shard.NOW or at > shard.NOW + MINUTE + 1 -- that was before the clock was put back
      past[#past + 1] = is_past and found[2][i] or nil
      others = others or not is_past
    end
  end
  call('ZREM', shard.LEASED, '') -- this may be a script's first write, and memory short
  values.in_pieces('HDEL', shard.META, past)
  if cursor == '0' and found[1] == '0' and not others then
    call('HDEL', shard.META, 'adds')
  else
    call('HSET', shard.META, 'adds', found[1])
  end
end
