-- A pass of the sweep over all records of a shard, a bounded step at a time: the clock was put back, tasks stand in
-- wrong places, quotas began or ended, or payloads may have lost their records.
--
-- `rewrite` of meta is how far the pass is, while one is under way, with "+" behind it once the pass has changed
-- anything. Then another follows, for the cursor means nothing to a server that has started since, or has taken over.
-- `misplaced` is there while a pass also puts tasks in their places (modules/misplaced.lua).
--
-- KEYS    as in shard.lua
-- ARGV    shard's

local AT_A_TIME, AT_ONCE = 16, 500 -- records that are looked at: in one scan, in one script

-- Whether a payload that stands apart is of no record: a server that rejects a script half way may leave such a one.
local function is_orphan(field)
  local sid = match(field, '^[^=]*')
  for _, data in ipairs(call('HMGET', shard.TASKS, sid, sid .. '+')) do
    shard.weight = shard.weight + #(data or '')
    if data and (bodies.of(sid, data) == field or not record.open(data)) then
      return false
    end
  end
  return true
end

-- Looks at one record as it stands under this name. Answers whether it is to be looked at again.
local function look(name, data, was_put_back, is_misplaced)
  local changed, stands = false, not string.find(name, '+', 1, true)
  if byte(name) == record.SCHEDULE then
    record.join_schedules(name)
  end
  if was_put_back and stands and put_back.mend(name, data) then
    changed, data = true, call('HGET', shard.TASKS, name)
  end
  if is_misplaced and stands and misplaced.look(name, data) then
    changed = true
  end
  return tenant_bytes.recount(name, data) or changed
end

-- A step of the pass, if one is under way; `was_put_back` says that the clock was. Answers whether there may be more.
function review.step(was_put_back)
  local place, clear, is_misplaced = unpack(call('HMGET', shard.META, 'rewrite', 'clear', 'misplaced'))
  if not place then
    if not clear then
      return false
    end
    call('ZREM', shard.LEASED, '')
    return not tenant_bytes.clear(clear) or settings.note_quotas()
  end
  local cursor, changed = match(place, '^(%d+)(%+?)$')
  local looked = 0
  call('ZREM', shard.LEASED, '')
  repeat
    local found = call('HSCAN', shard.TASKS, cursor, 'COUNT', AT_A_TIME)
    local rows = found[2]
    cursor, looked = found[1], looked + #rows / 2
    for i = 1, #rows, 2 do
      local name, data = rows[i], rows[i + 1]
      shard.weight = shard.weight + #data
      if not string.find(name, '=', 1, true) then
        changed = look(name, data, was_put_back, is_misplaced) and '+' or changed
      elseif is_orphan(name) then
        bodies.drop({ name })
      end
    end
  until cursor == '0' or looked >= AT_ONCE or shard.weight >= record.BYTES / 2
  if cursor ~= '0' or changed ~= '' then
    call('HSET', shard.META, 'rewrite', cursor == '0' and cursor or cursor .. changed)
    return true
  end
  call('HDEL', shard.META, 'rewrite', 'clear', 'misplaced')
  return not tenant_bytes.are_counted() and (not tenant_bytes.clear('0') or settings.note_quotas())
end
