-- The version in which a shard's records are written (adapters/redis/layout.py): raised, once no earlier caller is
-- left, and what is older rewritten then.
--
-- Whoever draws a fence counts it in `drawn` of the shard's meta, until the shard is of the newest version. Callers of
-- earlier versions do not: what is drawn besides is theirs. `others` is how many those were, `others_at` when a sweep
-- first saw so many. `rewrite` is how far a pass of the rewriting is, while it is under way, with "+" behind it once the
-- pass has changed anything: then another follows, for the cursor means nothing to a server that has started since, or
-- has taken over.
--
-- KEYS    as in shard.lua
-- ARGV    shard's

local PATIENCE = 3600000 -- ms without an earlier caller
local AT_A_TIME, AT_ONCE = 16, 500 -- records that are looked at: in one scan, in one script

-- How many fences were drawn by earlier callers.
function versions.drawn_by_others()
  local known = call('HMGET', shard.META, 'fence', 'drawn')
  return (known[1] or 0) - (known[2] or 0)
end

-- It begins with a ZREM, which runs where memory is short.
function versions.raise()
  call('ZREM', shard.LEASED, '')
  call('HDEL', shard.META, 'drawn', 'others', 'others_at')
  call('HSET', shard.META, 'layout', fields.NEWEST, 'rewrite', '0')
  shard.LAYOUT = fields.NEWEST
end

-- Raises the version of a shard that has seen no earlier caller for long.
function versions.watch()
  if shard.LAYOUT >= fields.NEWEST then
    return
  end
  local known, others = call('HMGET', shard.META, 'others', 'others_at'), versions.drawn_by_others()
  if tonumber(known[1] or nil) ~= others then
    call('ZREM', shard.LEASED, '')
    call('HSET', shard.META, 'others', others, 'others_at', shard.NOW_TEXT)
  elseif shard.NOW - known[2] >= PATIENCE then
    versions.raise()
  end
end

-- Takes in a record of this version, which another shard had: a later one raises this shard's, an older is to be
-- rewritten.
function versions.meet(version)
  if version > shard.LAYOUT then
    versions.raise()
  elseif version < shard.LAYOUT then
    call('HSET', shard.META, 'rewrite', '0')
  end
end

-- Writes what is there under this name in the newest version. Answers how many records that were.
local function renew(name, data)
  local r = record.open(data)
  if not r then
    return 0
  end
  local sid, field, payload, flag = match(name, '^[^+]*'), nil, nil, 0
  if not record.is_notification(name) then
    r.rest, field, payload, flag = bodies.part(sid, r.rest, r.generation)
  end
  r.flags = r.flags + flag
  call('HSET', shard.TASKS, name, record.close(r))
  if field then
    bodies.count(call('HSET', shard.TASKS, field, payload))
  end
  return 1
end

-- Whether a payload that stands apart is of no record: a caller of an earlier version has deleted that.
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

-- Begins a pass, unless one is under way.
function versions.look_again()
  call('ZREM', shard.LEASED, '')
  call('HSETNX', shard.META, 'rewrite', '0')
end

-- A bounded step through the records after the version was raised, or the clock `was_put_back`. Answers how many were
-- rewritten, and whether there
-- may be more.
function versions.rewrite(was_put_back)
  local known = call('HMGET', shard.META, 'rewrite', 'clear')
  local place = known[1]
  if known[2] and not place then
    call('ZREM', shard.LEASED, '')
    return 0, not weights.clear(known[2]) or settings.note_quotas()
  elseif not place then
    return 0, false
  end
  local cursor, changed = match(place, '^(%d+)(%+?)$')
  local looked, done = 0, 0
  call('ZREM', shard.LEASED, '')
  repeat
    local found = call('HSCAN', shard.TASKS, cursor, 'COUNT', AT_A_TIME)
    local rows = found[2]
    cursor, looked = found[1], looked + #rows / 2
    for i = 1, #rows, 2 do
      local name, data = rows[i], rows[i + 1]
      shard.weight = shard.weight + #data
      if string.find(name, '=', 1, true) then
        if is_orphan(name) then
          bodies.drop({ name })
        end
      else
        if byte(name) == record.SCHEDULE then
          record.join_schedules(name)
        end
        if was_put_back and not string.find(name, '+', 1, true) and clocks.mend(name, data) then
          changed, data = '+', call('HGET', shard.TASKS, name)
        end
        if weights.recount(name, data) then
          changed, data = '+', call('HGET', shard.TASKS, name)
        end
        if data ~= '' and byte(data) < shard.LAYOUT then
          done = done + renew(name, data)
        end
      end
    end
  until cursor == '0' or looked >= AT_ONCE or shard.weight >= record.BYTES / 2
  changed = done > 0 and '+' or changed
  local left = cursor ~= '0' or changed ~= ''
  if left then
    call('HSET', shard.META, 'rewrite', cursor == '0' and cursor or cursor .. changed)
  else
    call('HDEL', shard.META, 'rewrite', 'clear')
    if not weights.are_counted() then
      left = not weights.clear('0') or settings.note_quotas()
    end
  end
  return done, left
end
