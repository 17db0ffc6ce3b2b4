-- Keeps a checkpoint of a task's state, under its token.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's, then: stored id, fence, nonce (8 bytes), state (JSON text)
-- RETURNS {now, bell_at, 1 kept or 0 the lease is lost}
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local sid = ARGV[FIRST]
local r = open(call('HGET', TASKS, sid))
local held = r and r.status == LEASE and r.fence == tonumber(ARGV[FIRST + 1]) and r.nonce == ARGV[FIRST + 2]
if held then
  call('ZREM', LEASED, '')
  set_state(r, ARGV[FIRST + 3])
  call('HSET', TASKS, sid, close(r))
end
return { NOW, hang(false), held and 1 or 0 }
