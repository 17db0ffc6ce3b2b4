-- Keeps a checkpoint of a task's state, under its token.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then: stored id, token (14 bytes), state (JSON text)
-- RETURNS {now, bell_at, 1 kept or 0 the lease is lost}
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

--include prelude fresh record history lease

local sid = ARGV[FIRST]
local r = open(call('HGET', TASKS, sid))
local held = r and is_held(r, ARGV[FIRST + 1])
if held then
  call('ZREM', LEASED, '')
  set_state(r, ARGV[FIRST + 2])
  call('HSET', TASKS, sid, close(r))
end
return { NOW, hang(false), held and 1 or 0 }
