-- How many bytes of payloads and results each tenant has in a shard, where a quota of them is set.
--
-- A record with the flag COUNTED is counted: `bytes:<tenant>` of meta is the sum of what those have. Records are
-- counted for as long as they are there, ended ones too; never those of the tenant "-", nor notifications. Without a
-- `b` in `quotas`, a pass of the sweep has nothing counted any more, and the counts begin anew. `mend` takes the `b`
-- away for that, and a quota that is set brings it back.
--
-- KEYS    as in shard.lua
-- ARGV    shard's

local OWNER = '^%*?/?([^/]*)' -- of a stored id: whose bytes they are, and a schedule's are its tenant's
local TWICE = 2 -- of the flag, which is the lowest: a record is counted whose flags have a remainder

function tenant_bytes.are_counted()
  return match(shard.QUOTAS or '', 'b')
end

-- Whether a task with this stored id is to be counted.
function tenant_bytes.counts(sid)
  return tenant_bytes.are_counted() and match(sid, OWNER) ~= '-' and not string.find(sid, '~', 1, true)
end

-- The size of a payload, wherever that is.
local function payload_size(sid, flags, rest)
  local _, _, _, _, size = unpack_struct(fields.LENGTHS_FORMAT, rest, fields.LENGTHS_AT)
  if flags >= fields.APART then
    local ran, _, apart = pcall(bodies.field_of, sid, rest)
    return ran and apart or size
  end
  return size
end

-- The size of the result in a rest.
local function result_size(rest)
  local by, kind, group, notify, payload = unpack_struct(fields.LENGTHS_FORMAT, rest, fields.LENGTHS_AT)
  local at = fields.REST_SIZE + by + kind + group + notify + payload
  if #rest == at then
    return 0
  end
  at = at + 2 + unpack_struct('>I2', rest, at + 1)
  return (unpack_struct('>I4', rest, at + 1))
end

-- The size of an opened record's payload and result; whoever cannot open one has its flags and its rest.
function tenant_bytes.size_of(sid, r)
  return payload_size(sid, r.flags, r.rest) + result_size(r.rest)
end

-- The same of a record as it stands, which is not cut off within its front. What has not ended has no result.
local function standing_size(sid, data)
  local letter, result = byte(data, -1), 0
  if letter == fields.ENDED then
    result = unpack_struct(fields.ENDED_FORMAT, data, #data - fields.ENDED_SIZE + 1)
  elseif letter == fields.FINISHED then
    local ran, size = pcall(result_size, sub(data, fields.FRONT_SIZE + 1, -2))
    result = ran and size or 0
  end
  return payload_size(sid, byte(data, 2), sub(data, fields.FRONT_SIZE + 1)) + result
end

-- Adds to a tenant's bytes; the sum is written down while there is any.
function tenant_bytes.grow(tenant, change)
  local field = 'bytes:' .. tenant
  if change ~= 0 and call('HINCRBY', shard.META, field, values.text_of(change)) <= 0 then
    call('HDEL', shard.META, field)
  end
end

-- Counts an opened record, where the change is 1, or does so no more, where it is -1.
function tenant_bytes.count(sid, r, change)
  r.flags = r.flags + change * fields.COUNTED
  tenant_bytes.grow(match(sid, OWNER), change * tenant_bytes.size_of(sid, r))
end

-- How many bytes more are counted once an opened record that ended is pending again.
function tenant_bytes.more_by(sid, r)
  return r.flags % TWICE == 0 and tenant_bytes.size_of(sid, r) or 0
end

-- An opened record that ended is pending again; it may be of a time when nothing was counted.
function tenant_bytes.enter(sid, r)
  if r.flags % TWICE == 0 and tenant_bytes.counts(sid) then
    tenant_bytes.count(sid, r, 1)
  end
end

-- Records as they stand are deleted: those of these ids, false for one that is not there.
function tenant_bytes.drop(sids, records)
  local gone = {}
  for i, data in ipairs(records) do
    if data and #data >= fields.SMALLEST and byte(data) == fields.VERSION and byte(data, 2) % TWICE > 0 then
      local tenant = match(sids[i], OWNER)
      gone[tenant] = (gone[tenant] or 0) + standing_size(sids[i], data)
    end
  end
  for tenant, bytes in pairs(gone) do
    tenant_bytes.grow(tenant, -bytes)
  end
end

-- Counts a record as it stands under this name, or no more, as it should be. Answers whether that changed it.
function tenant_bytes.recount(name, data)
  if #data < fields.SMALLEST or byte(data) ~= fields.VERSION then
    return false
  end
  local sid, flags = match(name, '^[^+]*'), byte(data, 2)
  local was, is = flags % TWICE > 0, tenant_bytes.counts(sid) and true or false
  if was == is then
    return false
  end
  local change = is and 1 or -1
  tenant_bytes.grow(match(sid, OWNER), change * standing_size(sid, data))
  call('HSET', shard.TASKS, name, sub(data, 1, 1) .. string.char(flags + change * fields.COUNTED) .. sub(data, 3))
  return true
end

local LOOKED_AT = 500 -- fields of meta, in one step

-- What is left once nothing is counted is wrong: a bounded step that forgets it. Answers whether it was the last.
function tenant_bytes.clear(cursor)
  local found, wrong = call('HSCAN', shard.META, cursor, 'COUNT', LOOKED_AT), {}
  for i = 1, #found[2], 2 do
    if sub(found[2][i], 1, 6) == 'bytes:' then
      wrong[#wrong + 1] = found[2][i]
    end
  end
  values.in_pieces('HDEL', shard.META, wrong)
  if found[1] == '0' then
    call('HDEL', shard.META, 'clear')
  else
    call('HSET', shard.META, 'clear', found[1])
  end
  return found[1] == '0'
end
