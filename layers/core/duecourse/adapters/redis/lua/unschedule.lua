-- Deletes a schedule, with the occurrence that waits for the end of another.
--
-- KEYS    as in modules/shard.lua, with the due sets of schedules and of the tenant
-- ARGV    those of shard, then: stored id, tenant, the generation that it must have ("" for any), when it must have been
--         added (ms, "" for any)
-- RETURNS {now, bell_at, 1 or 0 where it is not there, or another}
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local SCHEDULES = '*'
local sid, tenant, generation, created = unpack(ARGV, shard.FIRST, shard.FIRST + 3)
local data = call('HGET', shard.TASKS, sid)
local r = record.open(data)
if (generation ~= '' and not (r and r.generation == tonumber(generation)))
  or (created ~= '' and not (r and r.created == tonumber(created))) then
  data = false
end

local function cancel_waiting(state)
  local waiting, occurrence = series.open_waiting(sid, state)
  if waiting then
    cancels.cancel(occurrence, waiting, 'schedule')
  end
end

if data then
  local state = r and series.read(r)
  record.delete(sid, data)
  if state and state.waiting ~= '' then
    cancel_waiting(state)
    tenants.rehead(tenant)
  end
  tenants.rehead(SCHEDULES)
end
if shard.ended then
  require 'waiters'
  waiters.publish(shard.ended)
end
return { shard.NOW, bell.hang(false), data and 1 or 0 }
