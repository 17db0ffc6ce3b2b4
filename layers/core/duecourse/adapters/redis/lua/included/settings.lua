-- What the scripts share that set a queue anew.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's
-- RETURNS nothing

--exports set

-- Every tenant that waits for a place of its own may be claimed from again, within the limit that is now.
local function wake_all()
  local parked = call('ZRANGE', PARKED, 0, -1, 'WITHSCORES')
  for i = 1, #parked, 2 do
    call('ZADD', HEADS, parked[i + 1], parked[i])
    woken = true
  end
  call('DEL', PARKED)
end

-- Sets the fields of meta that stand in ARGV from `at` on, each with its value, "" for none. It begins with a ZREM, which
-- runs where memory is short: then a queue is to be paused, or its finished tasks forgotten sooner.
function set(at)
  call('ZREM', LEASED, '')
  for i = at, #ARGV, 2 do
    if ARGV[i + 1] == '' then
      call('HDEL', META, ARGV[i])
    else
      call('HSET', META, ARGV[i], ARGV[i + 1])
    end
  end
  local tenant_max = TENANT_MAX
  read_meta()
  if TENANT_MAX ~= tenant_max then
    wake_all()
  end
  if not RATE and LOGGED > 0 then
    call('DEL', LOG)
    call('HDEL', META, 'logged')
  end
end
