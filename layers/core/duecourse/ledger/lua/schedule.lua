-- Writes a schedule: a new one, or a change of one that is as its caller read it.
--
-- KEYS    as in modules/shard.lua, with the due sets of schedules and of the tenant
-- ARGV    those of shard, then: registered (as in add.lua), stored id, tenant, the generation that is changed ("" for a
--         new one), when it fires next, rest of the record, its first 8 bytes this call's alone, the time by which that
--         was computed (0 for any)
-- RETURNS {now, bell_at, reply, for how many ms the tenant is to wait}; a reply is 1 created, 2 changed, 3 kept as it
--         is, -1 absent, -2 it was changed, was given another next time, or has fired since it was read, or the clock
--         was put back since (for a new one, set at all), -6 it cannot be read, -12 to -17 over a quota of its tenant,
--         as in add.lua, -18 it has as many schedules as it may

require 'fast_add' -- tried first, and most often that is all

local CREATED, CHANGED, ABSENT, CONFLICT = 1, 2, -1, -2
local SCHEDULES = '*'
local MINUTE = 60000 -- ms that the clock may be apart from the time by which it was computed
local sid, tenant, seen, due, rest, computed_at = unpack(ARGV, shard.FIRST + 1, shard.FIRST + 6)

local registered, is_new = ARGV[shard.FIRST] ~= '0', shard.FENCE == 0
if (shard.LEAVING or is_new) and not registered then
  return -8
end

local data, new = call('HGET', shard.TASKS, sid), { flags = 0, rest = rest }
local old, reply, wait = nil, nil, nil
if not data and seen ~= '' then
  reply = ABSENT
elseif data or shard.QUOTAS then
  require 'put_schedule' -- here, for to make functions is what a script spends its time on
  old, reply, wait = put_schedule.look(sid, tenant, seen, data, new)
end
local behind = shard.NOW - computed_at
if not reply and (behind < -MINUTE or behind > MINUTE and seen == '' and computed_at ~= '0') then
  reply = CONFLICT -- a new one's first time would be one that has passed
end
if reply then
  return { shard.NOW, bell.hang(false), reply, wait or 0 }
end

local generation = shard.next_fence()
if shard.LEAVING then
  call('HDEL', shard.META, 'leaving')
end
if is_new and shard.COUNT ~= '1' then
  call('HSET', shard.META, 'shards', shard.COUNT)
end
if old or shard.QUOTAS then
  put_schedule.count(sid, old, new)
end
local kept, field, payload, apart = bodies.part(sid, new.rest, generation)
if field then
  bodies.count(call('HSET', shard.TASKS, field, payload))
end
-- A backfill is of its series' time, by which it knows that one from another of its id, whatever the clock does.
local series_sid = match(sid, '^(.*)~')
local home = old or series_sid and record.open(call('HGET', shard.TASKS, series_sid))
local created = home and home.created or shard.NOW
due = tonumber(due)
call('HSET', shard.TASKS, sid,
  layout.new_record(new.flags + apart, due, created, generation, 0, kept))
local place = old and put_schedule.place(sid, old, new, due) or due
call('ZADD', shard.DUE[SCHEDULES], values.text_of(place), sid)
record.join_schedules(sid)
tenants.rehead(SCHEDULES)
return { shard.NOW, bell.hang(place <= shard.NOW), old and CHANGED or CREATED, 0 }
