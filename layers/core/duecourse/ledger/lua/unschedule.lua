-- Deletes schedules of a tenant, each with the occurrence that waits for the end of another.
--
-- KEYS    as in modules/shard.lua, with the due sets of schedules and of the tenant
-- ARGV    those of shard, then: tenant; of each schedule its stored id, the generation that it must have ("" for any),
--         and when it may have been added at the latest (ms, "" for any)
-- RETURNS {now, bell_at, {of each 1, or 0 where it is not there, or another}}; fewer than schedules where its bytes ran
--         out
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local SCHEDULES = '*'
local tenant, cancelled = ARGV[shard.FIRST], false

local function cancel_waiting(sid, state)
  local waiting, occurrence = progress.open_waiting(sid, state)
  if waiting then
    cancels.cancel(occurrence, waiting, 'schedule')
    cancelled = true
  end
end

local function is_meant(r, generation, latest)
  return (generation == '' or (r and r.generation == tonumber(generation)))
    and (latest == '' or (r and r.created <= tonumber(latest)))
end

local function drop(sid, generation, latest)
  local data = call('HGET', shard.TASKS, sid)
  local r = record.open(data)
  if not data or not is_meant(r, generation, latest) then
    return 0
  end
  local state = r and progress.read(r)
  record.delete(sid, data)
  if state and state.waiting ~= '' then
    cancel_waiting(sid, state)
  end
  return 1
end

local dropped, at = {}, shard.FIRST + 1
while at <= #ARGV and shard.weight < record.BYTES do
  dropped[#dropped + 1] = drop(ARGV[at], ARGV[at + 1], ARGV[at + 2])
  at = at + 3
end
if cancelled then
  tenants.rehead(tenant)
end
tenants.rehead(SCHEDULES)
if shard.ended then
  require 'waiters'
  waiters.publish(shard.ended)
end
return { shard.NOW, bell.hang(false), dropped }
