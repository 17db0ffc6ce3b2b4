-- Payloads that stand apart from their records, each in a field of its own of the tasks' hash
-- (ledger/layout.py).
--
-- KEYS    as in shard.lua
-- ARGV    shard's

-- Where a rest's payload begins and ends, in bytes before it and up to its end.
local function span(rest)
  local by, kind, group, notify, payload = unpack_struct(fields.LENGTHS_FORMAT, rest, fields.LENGTHS_AT)
  local from = fields.REST_SIZE + by + kind + group + notify
  return from, from + payload
end

local function name(sid, number)
  return string.format('%s=%d', sid, number)
end

-- The field of the payload of a rest that has it apart, and its size.
function bodies.field_of(sid, rest)
  local number, size = unpack_struct(fields.BODY_FORMAT, rest, span(rest) + 1)
  return name(sid, number), size
end

-- The same of a record as it stands; nil where its payload is in it, and where it is cut off.
function bodies.of(sid, data)
  if #data < fields.SMALLEST or byte(data, 2) < fields.APART then
    return nil
  end
  local ran, field, size = pcall(bodies.field_of, sid, sub(data, fields.FRONT_SIZE + 1))
  if ran then
    return field, size
  end
end

-- A rest without its payload where that is large, the field that it is to have, it, and the flag; else the rest as it
-- is, and 0.
function bodies.part(sid, rest, number)
  local from, to = span(rest)
  if to - from <= fields.INSIDE then
    return rest, nil, nil, 0
  end
  local before = sub(rest, 1, fields.REST_SIZE - 4) .. pack('>I4', fields.BODY_SIZE)
    .. sub(rest, fields.REST_SIZE + 1, from)
  return before .. pack(fields.BODY_FORMAT, number, to - from) .. sub(rest, to + 1), name(sid, number),
    sub(rest, from + 1, to), fields.APART
end

-- Counts those that were written or deleted; the count is written down while there is any.
function bodies.count(change)
  if change ~= 0 and call('HINCRBY', shard.META, 'bodies', change) <= 0 then
    call('HDEL', shard.META, 'bodies')
  end
end

function bodies.drop(names)
  if #names > 0 then
    bodies.count(-call('HDEL', shard.TASKS, unpack(names)))
  end
end
