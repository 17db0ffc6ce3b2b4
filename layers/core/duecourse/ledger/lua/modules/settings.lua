-- What the scripts share that set a queue anew.

local AT_ONCE = 500 -- tenants that one script looks at

-- Lets tenants that wait for a place of their own be claimed from again, where the limit that is now has one for them.
-- It is a bounded step of a pass, if there is one. Ranks change between two steps: so passes of several steps follow
-- each other until one wakes nobody. Answers whether there may be more.
function settings.wake_parked()
  local from, woke = match(call('HGET', shard.META, 'unpark') or '', '^(%d+)(%+?)$')
  if not from then
    return false
  end
  local parked, counts = call('ZRANGE', shard.PARKED, from, from + AT_ONCE - 1, 'WITHSCORES'), {}
  for i = 1, #parked, 2 do
    counts[#counts + 1] = 'running:' .. parked[i]
  end
  counts = #counts > 0 and call('HMGET', shard.META, unpack(counts)) or {}
  local woken = {}
  for i, count in ipairs(counts) do
    if not shard.TENANT_MAX or (tonumber(count or nil) or 0) < shard.TENANT_MAX then
      local tenant = parked[2 * i - 1]
      woken[#woken + 1] = tenant
      if not (call('ZSCORE', shard.RING, tenant) or call('ZSCORE', shard.HEADS, tenant)) then
        call('ZADD', shard.HEADS, parked[2 * i], tenant)
      end
    end
  end
  values.in_pieces('ZREM', shard.PARKED, woken)
  shard.woken = shard.woken or #woken > 0
  local ends = #counts < AT_ONCE
  woke = #woken > 0 and '+' or woke
  if ends and (from == '0' or woke == '') then
    call('HDEL', shard.META, 'unpark')
    return false
  end
  call('HSET', shard.META, 'unpark', ends and '0' or values.text_of(from + #counts - #woken) .. woke)
  return true
end

-- Whether any tenant has a quota by the deployment, the first to the fourth of each line.
local function any_default(text, place)
  for line in string.gmatch(text or '', '[^\n]+') do
    local found = { match(line, '^%S+ (%S+) (%S+) (%S+) ?(%S*)') }
    if tonumber(found[place]) then
      return true
    end
  end
  return false
end

-- Notes which quotas are set, by the queue or the deployment. Answers whether records are to be counted from now on, or
-- no more (tenant_bytes.recount): those of a queue with a quota of bytes are.
function settings.note_quotas()
  local own = call('HMGET', shard.META, 'tenant_max_pending', 'tenant_max_bytes', 'tenant_adds_per_minute',
    'tenant_max_schedules', 'default_quotas')
  local was, set = shard.QUOTAS, ''
  for place, letter in ipairs({ 'p', 'b', 'a', 's' }) do
    set = set .. ((own[place] or any_default(own[5], place)) and letter or '')
  end
  if set == (was or '') then
    return false
  elseif set == '' then
    call('HDEL', shard.META, 'quotas')
  else
    call('HSET', shard.META, 'quotas', set)
  end
  shard.QUOTAS = set ~= '' and set or nil
  local changes = match(set, 'b') ~= match(was or '', 'b')
  if changes or (match(set, 's') and not match(was or '', 's')) then -- schedules are to be counted from now on
    call('HSET', shard.META, 'rewrite', '0')
  end
  return changes
end

-- Sets the fields of meta that stand in ARGV from `at` on, each with its value, "" for none. It begins with a ZREM,
-- which runs where memory is short: then a queue is to be paused, or its finished tasks forgotten sooner.
function settings.set(at)
  call('ZREM', shard.LEASED, '')
  for i = at, #ARGV, 2 do
    if ARGV[i + 1] == '' then
      call('HDEL', shard.META, ARGV[i])
    else
      call('HSET', shard.META, ARGV[i], ARGV[i + 1])
    end
  end
  local tenant_max = shard.TENANT_MAX
  shard.read_meta()
  settings.note_quotas()
  if shard.TENANT_MAX ~= tenant_max and call('ZCARD', shard.PARKED) > 0 then
    call('HSET', shard.META, 'unpark', '0')
    settings.wake_parked()
  end
  if not shard.RATE and shard.LOGGED > 0 then
    call('DEL', shard.LOG)
    call('HDEL', shard.META, 'logged')
  end
end

-- Sets the deployment's quotas, which hold where the queue has none of its own. The text has a line for each tenant by
-- name: its name and its quotas, "-" for none, the fourth left out where it is none. The tenant "-" is all others. It
-- begins with a ZREM, too.
function settings.set_defaults(text)
  if (call('HGET', shard.META, 'default_quotas') or '') == text then
    return
  end
  call('ZREM', shard.LEASED, '')
  if text == '' then
    call('HDEL', shard.META, 'default_quotas')
  else
    call('HSET', shard.META, 'default_quotas', text)
  end
  settings.note_quotas()
end
