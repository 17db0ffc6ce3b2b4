-- Keeps a checkpoint of a task's state, under its token.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: stored id, token (14 bytes), state (JSON text), and, if another state is to stay, the
--         one that this takes the place of
-- RETURNS {now, bell_at, 1 kept, or another stays, or 0 the lease is lost}
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local sid = ARGV[shard.FIRST]
local r = record.open(call('HGET', shard.TASKS, sid))
local is_leased = r and leases.is_leased(r, ARGV[shard.FIRST + 1])
if not is_leased then
  leases.miss(ARGV[shard.FIRST + 1])
else
  call('ZREM', shard.LEASED, '')
  local _, before = record.split(r.rest)
  if before == (ARGV[shard.FIRST + 3] or before) then
    history.set_state(r, ARGV[shard.FIRST + 2])
    call('HSET', shard.TASKS, sid, record.close(r))
  end
end
return leases.answer({ shard.NOW, bell.hang(false), is_leased and 1 or 0 })
