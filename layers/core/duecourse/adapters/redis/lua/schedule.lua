-- Writes a schedule: a new one, or a change of one that is as its caller read it.
--
-- KEYS    as in modules/shard.lua, with the due sets of schedules and of the tenant
-- ARGV    those of shard, then: registered (as in add.lua), stored id, tenant, the version that is changed ("" for a new
--         one), when it fires next, rest of the record, its first 8 bytes this call's alone
-- RETURNS {now, bell_at, reply, for how many ms the tenant is to wait}; a reply is 1 created, 2 changed, 3 kept as it
--         is, -1 absent, -2 another version, or it has fired since it was read, -5 the shard's records are of a version
--         that knows no schedules, -6 it cannot be read, -12 to -17 over a quota of its tenant, as in add.lua,
--         -18 it has as many schedules as it may

require 'usual' -- tried first, and most often that is all

local CREATED, CHANGED, ABSENT, TOO_OLD = 1, 2, -1, -5
local SCHEDULES = '*'
local sid, tenant, version, due, rest = unpack(ARGV, shard.FIRST + 1, shard.FIRST + 5)

local registered, is_new = ARGV[shard.FIRST] ~= '0', shard.FENCE == 0
if (shard.LEAVING or is_new) and not registered then
  return -8
end
shard.LAYOUT = is_new and tonumber(ARGV[shard.FIRST]) or shard.LAYOUT

local data, fresh = call('HGET', shard.TASKS, sid), { flags = 0, rest = rest }
local old, reply, wait = nil, nil, nil
if shard.LAYOUT < 5 then
  reply = TOO_OLD
elseif not data and version ~= '' then
  reply = ABSENT
elseif data or shard.QUOTAS then
  require 'put' -- here, for to make functions is what a script spends its time on
  old, reply, wait = put.look(sid, tenant, version, data, fresh)
end
if reply then
  return { shard.NOW, bell.hang(false), reply, wait or 0 }
end

local generation = shard.next_fence()
if shard.LEAVING then
  call('HDEL', shard.META, 'leaving')
end
if is_new then
  call('HSET', shard.META, 'layout', ARGV[shard.FIRST])
  if shard.COUNT ~= '1' then
    call('HSET', shard.META, 'shards', shard.COUNT)
  end
end
if old or shard.QUOTAS then
  put.count(sid, old, fresh)
end
local kept, field, payload, apart = bodies.part(sid, fresh.rest, generation)
if field then
  bodies.count(call('HSET', shard.TASKS, field, payload))
end
-- A backfill is of its series' time, by which it knows that one from another of its id, whatever the clock does.
local series_sid = match(sid, '^(.*)~')
local home = old or series_sid and record.open(call('HGET', shard.TASKS, series_sid))
local created = home and home.created or shard.NOW
due = tonumber(due)
call('HSET', shard.TASKS, sid,
  layout.fresh_record(shard.LAYOUT, fresh.flags + apart, due, created, generation, 0, kept))
call('ZADD', shard.DUE[SCHEDULES], values.text_of(due), sid)
record.join_schedules(sid)
tenants.rehead(SCHEDULES)
return { shard.NOW, bell.hang(due <= shard.NOW), old and CHANGED or CREATED, 0 }
