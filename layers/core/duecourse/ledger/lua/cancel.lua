-- Cancels scheduled tasks, leased ones by force; deletes dead ones.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard (of tenants the one), then: 1 where all is one step, force (1), by whom, the newest generation
--         that may be cancelled ("" for any), then the stored ids
-- RETURNS {now, bell_at, {reply...}}; a reply is 0 cancelled, -1 absent, -3 leased, -4 done, -5 cancelled before, -19
-- of
--         a later generation; there are fewer than tasks where its bytes ran out before the last, and it is not one
--         step

local whole, forced, by = ARGV[shard.FIRST] == '1', ARGV[shard.FIRST + 1] == '1', ARGV[shard.FIRST + 2]
local newest = tonumber(ARGV[shard.FIRST + 3])
local changed = false
local CHANGED = -19

-- What cannot be read is deleted wherever it stands: where it is dead, or by force.
local function discard(sid, data)
  if not (forced or call('ZSCORE', shard.DEAD, sid)) then
    return -1
  end
  if call('ZREM', shard.LEASED, sid) == 1 then
    leases.count_running({ [tenants.tenant_of(sid)] = -1 }, 0)
    places.free_lost_place(sid)
  end
  record.delete(sid, data)
  changed = true
  return 0
end

local function answer(sid)
  local data = call('HGET', shard.TASKS, sid)
  local r = record.open(data)
  if not r then
    return data and discard(sid, data) or -1
  elseif newest and history.newest_of(sid, r).generation > newest then
    return CHANGED
  elseif r.status == fields.DIED then
    record.delete(sid, data)
    return 0
  elseif r.status == fields.SCHEDULED or (r.status == fields.LEASE and forced) then
    cancels.cancel(sid, r, by)
    changed = true
    return 0
  end
  return record.refusal(r)
end

local replies = record.each(shard.FIRST + 4, 1, whole, answer)
if changed then
  tenants.rehead(shard.TENANT)
end
if shard.ended or shard.occurred then
  require 'announce'
  announce.ends(shard.ended)
end
return { shard.NOW, bell.hang(false), replies }
