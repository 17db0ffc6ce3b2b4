-- Gives leases more time, each under its token. A task that was claimed ahead has begun where its lease is extended.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: lease ms from now, 1 where a lease that ends later stays as it is, then for each lease:
--         stored id, token (14 bytes)
-- RETURNS {now, bell_at, {end of the lease, 0 where it is lost...}}, fewer than leases where its bytes ran out
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local lease_ms, at_least = tonumber(ARGV[shard.FIRST]), ARGV[shard.FIRST + 1] == '1'
local works = {} -- kind of what a function runs -> until when
call('ZREM', shard.LEASED, '')

-- The end of the lease from now on.
local function extend(sid, at)
  local r = record.open(call('HGET', shard.TASKS, sid))
  if not r or not leases.is_leased(r, ARGV[at + 1]) then
    leases.miss(ARGV[at + 1])
    return 0
  end
  local before = at_least and tonumber(call('ZSCORE', shard.LEASED, sid) or 0) or 0
  local ends_at = math.max(shard.NOW + lease_ms, before)
  call('ZADD', shard.LEASED, ends_at, sid)
  if r.ahead then
    call('HSET', shard.TASKS, sid, record.close(r))
  end
  if r.delivery then
    local kind = record.kind_of(r.rest)
    works[kind] = math.max(works[kind] or 0, ends_at)
  end
  return ends_at
end

local ends = record.each(shard.FIRST + 2, 2, false, extend)
for kind, until_at in pairs(works) do
  busy.runs(kind, until_at)
end
return leases.answer({ shard.NOW, bell.hang(false), ends })
