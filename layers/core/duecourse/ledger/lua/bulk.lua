-- Counts, deletes or cancels a tenant's tasks in one section of the order, those after a place in it: a bounded step.
-- Notifications that are scheduled it leaves alone.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard (of tenants the one) and walk, then: act (count, delete, cancel), most tasks, least age (ms)
--         since the add of a task that is scheduled or leased, since the end of another; by whom; an instant (0 for
--         none): tasks whose age began later, or that a caller changed later, are left out; at and id of the place
--         behind which no task is meant ("" for none)
-- RETURNS {now, bell_at, how many, how far it looked: at, id ("" before all of that instant), or nothing where that is
--         all}

require 'walk'

local act, most, age, by, before, last_at, last_id = unpack(ARGV, shard.FIRST, shard.FIRST + 6)
local live = walk.section == 'due' or walk.section == 'leased'
local newest, count = shard.NOW - age, 0
before = tonumber(before) > 0 and tonumber(before) or nil

-- False for a task that came, or was changed by a caller, after the instant up to which this call sees.
local function was_there(r, score)
  return walk.began(r, score) <= before and not (live and history.changed_since(r, before))
end

local function is_meant(sid, score, r, data)
  if not r then -- as `cancel` does: what is dead and cannot be read is deleted
    return walk.section == 'dead' and data and walk.is_for_all()
  elseif live and record.is_notification(sid) then
    return false
  end
  return walk.fits(sid, r, score) and walk.began(r, score) <= newest and (not before or was_there(r, score))
end

-- Whether there is room for more after this one.
local function look(sid, score, data)
  if last_at ~= '' and walk.is_behind(sid, score, tonumber(last_at), last_id) then
    return false
  end
  local r = record.open(data)
  if is_meant(sid, score, r, data) then
    count = count + 1
    if act == 'delete' then
      record.delete(sid, data)
      record.note_end(sid, live and r.flags or 0, fields.CANCELLED)
    elseif act == 'cancel' then
      cancels.cancel(sid, r, by)
    end
  end
  return count < tonumber(most)
end

local flat, reached = walk.meant()
-- In time's order: behind one that ended later, all did.
if not live and walk.group == '' then
  while #flat > 0 and tonumber(flat[#flat]) > newest do
    flat[#flat], flat[#flat - 1], reached = nil, nil, nil
  end
end
local stopped = walk.each(flat, record.BYTES, look)
if count > 0 and act ~= 'count' then
  tenants.rehead(shard.TENANT)
end
if shard.ended or shard.occurred then
  require 'announce'
  announce.ends(shard.ended)
end
return { shard.NOW, bell.hang(false), count, stopped or reached or {} }
