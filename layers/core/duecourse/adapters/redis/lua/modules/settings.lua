-- What the scripts share that set a queue anew.

-- Every tenant that waits for a place of its own may be claimed from again, within the limit that is now.
local function wake_all()
  local parked = call('ZRANGE', shard.PARKED, 0, -1, 'WITHSCORES')
  for i = 1, #parked, 2 do
    call('ZADD', shard.HEADS, parked[i + 1], parked[i])
    shard.woken = true
  end
  call('DEL', shard.PARKED)
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
-- no more (weights.recount): those of a queue with a quota of bytes are.
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
  if shard.TENANT_MAX ~= tenant_max then
    wake_all()
  end
  if not shard.RATE and shard.LOGGED > 0 then
    call('DEL', shard.LOG)
    call('HDEL', shard.META, 'logged')
  end
end

-- Sets the deployment's quotas, which hold where the queue has none of its own: of each tenant by name a line, its name
-- and its quotas, "-" for none, the fourth left out where it is none; the tenant "-" is all others. It begins with a ZREM, too.
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
