-- Schedules that are due, for whoever fires them: tenants take turns where more are due than one claim hands out.

local SCHEDULES = '*' -- the tenant of schedules
local MOST = 200 -- as ledger/operation_types.py
local FEW = 50 -- where more are due: a step with their occurrences is short, and the next tenant's turn comes soon
local LOOK = 10000 -- ids that are looked through for those of other tenants: two milliseconds
local AT_ONCE = 20 -- records that are read at a time, each of up to two KiB without its payload
local OWNER = '^%*/([^/]*)' -- of a stored id

local function due_from(place, count)
  return call('ZRANGEBYSCORE', shard.DUE[SCHEDULES], '-inf', shard.NOW_TEXT, 'LIMIT', values.text_of(place),
    values.text_of(count))
end

-- The longest due. If there are more than one look goes through, its second half is one of the parts behind the first.
-- Which one follows from the time: so nothing is written, and no part is out of sight for long.
local function look()
  local count = call('ZCOUNT', shard.DUE[SCHEDULES], '-inf', shard.NOW_TEXT)
  if count <= LOOK then
    return due_from(0, LOOK)
  end
  local half = LOOK / 2
  local sids, parts = due_from(0, half), math.ceil(count / half) - 1
  for _, sid in ipairs(due_from(half + shard.NOW % parts * half, half)) do
    sids[#sids + 1] = sid
  end
  return sids
end

-- The ids by turns: the longest due of each tenant, then the second of each, and so on, FEW at the most.
local function by_turns(sids)
  local lists, order, chosen, turn = {}, {}, {}, 1
  for _, sid in ipairs(sids) do
    local tenant = match(sid, OWNER) or ''
    local own = lists[tenant]
    if not own then
      own = {}
      lists[tenant], order[#order + 1] = own, own
    end
    own[#own + 1] = sid
  end
  repeat
    local before = #chosen
    for _, own in ipairs(order) do
      chosen[#chosen + 1] = #chosen < FEW and own[turn] or nil
    end
    turn = turn + 1
  until #chosen == before or #chosen >= FEW
  return chosen
end

-- As far as a script may read: {stored id, record, its payload where that is apart, or ""...}. Where their due set is
-- not among KEYS, their tenant is added to `want`.
function due_schedules.read(want)
  local found = {}
  if not shard.DUE[SCHEDULES] then
    want[#want + 1] = SCHEDULES
    return found
  end
  local sids = due_from(0, MOST + 1)
  if #sids > MOST then
    sids = by_turns(look())
  end
  local weight = 0 -- apart from that of the claim's tasks, which leave them no less than half a script's
  for first = 1, #sids, AT_ONCE do
    local some = { unpack(sids, first, math.min(first + AT_ONCE - 1, #sids)) }
    for i, data in ipairs(call('HMGET', shard.TASKS, unpack(some))) do
      if data and weight < record.BYTES / 2 then
        local field = bodies.of(some[i], data)
        local payload = field and call('HGET', shard.TASKS, field) or ''
        weight = weight + #data + #payload
        values.push(found, some[i], data)
        found[#found + 1] = payload
      end
    end
    if weight >= record.BYTES / 2 then
      break
    end
  end
  return found
end
