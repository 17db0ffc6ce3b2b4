-- Writes a schedule: a new one, or a change of one that is as its caller read it.
--
-- KEYS    as in modules/shard.lua, with the due sets of schedules and of the tenant
-- ARGV    those of shard, then: registered (as in add.lua), stored id, tenant, the version that is changed ("" for a new
--         one), when it fires next, rest of the record, its first 8 bytes this call's alone
-- RETURNS {now, bell_at, reply, for how many ms the tenant is to wait}; a reply is 1 created, 2 changed, 3 kept as it
--         is, -1 absent, -2 another version, or it has fired since it was read, -5 the shard's records are of a version
--         that knows no schedules, -6 it cannot be read, -12 to -17 over a quota of its tenant, as in add.lua

local CREATED, CHANGED, KEPT, ABSENT, CONFLICT, TOO_OLD, DAMAGED = 1, 2, 3, -1, -2, -5, -6
local SCHEDULES = '*'
local sid, tenant, version, due, rest = unpack(ARGV, shard.FIRST + 1, shard.FIRST + 5)

local registered, is_new = ARGV[shard.FIRST] ~= '0', shard.FENCE == 0
if (shard.LEAVING or is_new) and not registered then
  return -8
end
shard.LAYOUT = is_new and tonumber(ARGV[shard.FIRST]) or shard.LAYOUT

-- What a change keeps of the state: who has ended since it was read, and who has not. False where it has fired since.
local function merge(new, old)
  local counts = '^%S+ %S+ (%S+ %S+ %S+)'
  if match(new.head, counts) ~= match(old.head, counts)
    or string.gsub(new.recent, '%u', '') ~= string.gsub(old.recent, '%u', '') then
    return false
  end
  new.recent, new.live, new.waiting = old.recent, old.live, old.waiting
  return true
end

local data = call('HGET', shard.TASKS, sid)
local old = record.open(data)
local fresh = { flags = 0, rest = rest }

local function refusal()
  if shard.LAYOUT < 5 then
    return TOO_OLD
  elseif not data then
    return version ~= '' and ABSENT or nil
  end
  local state = old and series.read(old)
  if not state then
    return DAMAGED
  elseif sub(old.rest, 1, 8) == sub(rest, 1, 8) then -- sent again
    call('HSET', shard.TASKS, sid, data) -- as it is: who waits for replicas waits for what this connection wrote
    return version == '' and CREATED or CHANGED
  elseif version == '' then
    return KEPT
  end
  local new = series.read(fresh)
  if match(state.head, '^%S+') ~= version or not merge(new, state) then
    return CONFLICT
  end
  series.write(fresh, new)
end

local function over_quota()
  local size = weights.size_of(sid, fresh)
  local given_up = old and old.flags % weights.TWICE > 0 and weights.size_of(sid, old) or 0
  return quotas.refusal(tenant, old and 0 or 1, size - given_up, old and 0 or 1, 1, size)
end

local reply, wait = refusal(), 0
if not reply and shard.QUOTAS then
  reply, wait = over_quota()
end
if reply then
  return { shard.NOW, bell.hung() or 0, reply, wait or 0 }
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
if old then
  record.drop_body(sid, old)
end
if weights.counts(sid) then
  weights.count(sid, fresh, 1)
end
local kept, field, payload, apart = bodies.part(sid, fresh.rest, generation)
if field then
  bodies.count(call('HSET', shard.TASKS, field, payload))
end
local created = old and old.created or shard.NOW
due = tonumber(due)
call('HSET', shard.TASKS, sid,
  layout.fresh_record(shard.LAYOUT, fresh.flags + apart, due, created, generation, 0, kept))
call('ZADD', shard.DUE[SCHEDULES], values.text_of(due), sid)
tenants.rehead(SCHEDULES)
return { shard.NOW, bell.hang(due <= shard.NOW), old and CHANGED or CREATED, 0 }
