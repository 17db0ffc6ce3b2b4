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
  if shard.TENANT_MAX ~= tenant_max then
    wake_all()
  end
  if not shard.RATE and shard.LOGGED > 0 then
    call('DEL', shard.LOG)
    call('HDEL', shard.META, 'logged')
  end
end
