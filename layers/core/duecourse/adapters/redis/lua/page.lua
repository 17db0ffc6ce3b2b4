-- Reads a tenant's tasks in one section of the order, those after a place in it; changes nothing.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard (of tenants the one), then: section (due, leased, done, dead), at and id of the place, limit,
--         status (its letter in a record, "" for any), kind ("" for any), group ("" for any); of a group, the tasks
--         that are looked at: stored id and at of each, in order
-- RETURNS {now, how far it looked: at, id ("" before all of that instant), or nothing where that is all,
--         {stored id, at, record, its payload where that stands apart...}}

local LOOK, MOST = 500, 1000000 -- entries, bytes
local NAMED = shard.FIRST + 7
local section, at, id, limit, status, kind, group = unpack(ARGV, shard.FIRST, NAMED - 1)
local SECTIONS = { due = shard.DUE[shard.TENANT], leased = shard.LEASED, done = shard.DONE, dead = shard.DEAD }
local key, own = SECTIONS[section], shard.TENANT .. '/'

-- Byte by byte, as sorted sets compare; Lua goes by the server's locale.
local function less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

-- How many members stand at or before this one, whether or not it is there.
local function rank_after(sid)
  if tonumber(call('ZSCORE', key, sid) or nil) == tonumber(at) then
    return call('ZRANK', key, sid) + 1
  end
  local low = call('ZCOUNT', key, '-inf', '(' .. at)
  local high = low + call('ZCOUNT', key, at, at)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if less(call('ZRANGE', key, middle, middle)[1], sid) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local function fits(sid, r)
  local by_end, kind_end = record.ends_of(r.rest)
  return (status == '' or r.status == byte(status))
    and (kind == '' or kind == sub(r.rest, by_end + 1, kind_end))
    and (group == '' or (group == record.group_of(r.rest) and not record.is_notification(sid)))
end

-- The place after what was looked at, in words of this tenant's alone: another's ids are not shown.
local function place(score, sid)
  if sub(sid, 1, #own) == own then
    return { score, sub(sid, #own + 1) }
  elseif less(sid, own) then
    return { score, '' }
  end
  return { values.text_of(tonumber(score) + 1), '' }
end

local found = {}

-- Whether there is room for more after this one.
local function take(sid, score, data)
  local mine = sub(sid, 1, #own) == own
  local r = mine and record.open(data)
  shard.weight = shard.weight + (mine and 0 or #(data or ''))
  if r and fits(sid, r) then
    local field = bodies.of(sid, data)
    local payload = field and call('HGET', shard.TASKS, field) or ''
    shard.weight = shard.weight + #payload
    values.push(found, sid, score)
    values.push(found, data, payload)
  end
  return #found < 4 * tonumber(limit) and shard.weight < MOST
end

-- Of the tasks that the caller names, those that stand where it saw them, {stored id, at...}.
local function named()
  local flat, sids = {}, {}
  for i = NAMED, #ARGV, 2 do
    sids[#sids + 1] = ARGV[i]
  end
  for i, score in ipairs(call('ZMSCORE', key, unpack(sids))) do
    if tonumber(score or nil) == tonumber(ARGV[NAMED + 2 * i - 1]) then
      values.push(flat, sids[i], score)
    end
  end
  return flat
end

local function of_all()
  local start = rank_after(own .. id)
  return call('ZRANGE', key, start, start + LOOK - 1, 'WITHSCORES')
end

local flat = group ~= '' and named() or of_all()
local reached = group == '' and #flat == 2 * LOOK and place(flat[#flat], flat[#flat - 1]) or {}
local looked, count = 0, #flat / 2
while looked < count do
  local sids = {}
  for i = looked + 1, math.min(looked + record.piece(looked), count) do
    sids[#sids + 1] = flat[2 * i - 1]
  end
  for i, data in ipairs(call('HMGET', shard.TASKS, unpack(sids))) do
    local score = flat[2 * (looked + i)]
    if not take(sids[i], score, data) then
      return { shard.NOW, place(score, sids[i]), found }
    end
  end
  looked = looked + #sids
end
return { shard.NOW, reached, found }
