-- Gives leases more time, each under its token.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then: lease ms from now, then for each lease: stored id, token (14 bytes)
-- RETURNS {now, bell_at, {end of the lease, 0 where it is lost...}}
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

--include prelude fresh record history lease

local lease_ms = tonumber(ARGV[FIRST])
local ends = {}
call('ZREM', LEASED, '')
for at = FIRST + 1, #ARGV, 2 do
  local r = open(call('HGET', TASKS, ARGV[at]))
  local held = r and is_held(r, ARGV[at + 1])
  if held then
    call('ZADD', LEASED, NOW + lease_ms, ARGV[at])
  end
  ends[#ends + 1] = held and NOW + lease_ms or 0
end
return { NOW, hang(false), ends }
