-- Gives leases more time, each under its token.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: lease ms from now, 1 where a lease that ends later stays as it is, then for each lease:
--         stored id, token (14 bytes)
-- RETURNS {now, bell_at, {end of the lease, 0 where it is lost...}}, fewer than leases where its bytes ran out
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local lease_ms, at_least = tonumber(ARGV[shard.FIRST]), ARGV[shard.FIRST + 1] == '1'
local ends = {}
call('ZREM', shard.LEASED, '')
for at = shard.FIRST + 2, #ARGV, 2 do
  if shard.weight >= record.BYTES then
    break
  end
  local r = record.open(call('HGET', shard.TASKS, ARGV[at]))
  local held = r and leases.is_held(r, ARGV[at + 1])
  local ends_at = 0
  if held then
    ends_at = math.max(shard.NOW + lease_ms, at_least and tonumber(call('ZSCORE', shard.LEASED, ARGV[at]) or 0) or 0)
    call('ZADD', shard.LEASED, ends_at, ARGV[at])
  end
  ends[#ends + 1] = ends_at
end
return { shard.NOW, bell.hang(false), ends }
