-- Deletes a schedule, with the occurrence that waits for the end of another.
--
-- KEYS    as in modules/shard.lua, with the due sets of schedules and of the tenant
-- ARGV    those of shard, then: stored id, tenant, the generation that it must have ("" for any)
-- RETURNS {now, bell_at, 1 or 0 where it is not there, or of another generation}
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local sid, tenant = ARGV[shard.FIRST], ARGV[shard.FIRST + 1]
local data = call('HGET', shard.TASKS, sid)
local wanted = ARGV[shard.FIRST + 2] or ''
if data and wanted ~= '' and (record.open(data) or {}).generation ~= tonumber(wanted) then
  data = false
end

local function cancel_waiting(state)
  local r, occurrence = series.open_waiting(sid, state)
  if r then
    cancels.cancel(occurrence, r, 'schedule')
  end
end

if data then
  local r = record.open(data)
  local state = r and series.read(r)
  record.delete(sid, data)
  if state and state.waiting ~= '' then
    cancel_waiting(state)
    tenants.rehead(tenant)
  end
  tenants.rehead('*')
end
if shard.ended then
  require 'waiters'
  waiters.publish(shard.ended)
end
return { shard.NOW, bell.hang(false), data and 1 or 0 }
