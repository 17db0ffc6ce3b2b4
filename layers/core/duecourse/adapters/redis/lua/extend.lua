-- Gives leases more time, each under its token.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then: lease ms from now, 1 where a lease that ends later stays as it is, then for each lease: stored
--         id, token (14 bytes)
-- RETURNS {now, bell_at, {end of the lease, 0 where it is lost...}}, fewer than leases where its bytes ran out
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

--include prelude fresh record history lease

local lease_ms, at_least = tonumber(ARGV[FIRST]), ARGV[FIRST + 1] == '1'
local ends = {}
call('ZREM', LEASED, '')
for at = FIRST + 2, #ARGV, 2 do
  if weight >= BYTES then
    break
  end
  local r = open(call('HGET', TASKS, ARGV[at]))
  local held = r and is_held(r, ARGV[at + 1])
  local ends_at = 0
  if held then
    ends_at = math.max(NOW + lease_ms, at_least and tonumber(call('ZSCORE', LEASED, ARGV[at]) or 0) or 0)
    call('ZADD', LEASED, ends_at, ARGV[at])
  end
  ends[#ends + 1] = ends_at
end
return { NOW, hang(false), ends }
