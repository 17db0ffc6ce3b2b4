-- Keeps a checkpoint of a task's state, under its token.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's, then: stored id, fence, nonce (8 bytes), state (JSON text)
-- RETURNS {now, bell_at, 1 kept or 0 the lease is lost}

local sid = ARGV[FIRST]
local data = call('HGET', TASKS, sid)
local r = data and open(data)
local held = r and r.status == LEASE and r.fence == tonumber(ARGV[FIRST + 1]) and r.nonce == ARGV[FIRST + 2]
if held then
  set_state(r, ARGV[FIRST + 3])
  call('HSET', TASKS, sid, close(r))
end
return { NOW, hang(false), held and 1 or 0 }
