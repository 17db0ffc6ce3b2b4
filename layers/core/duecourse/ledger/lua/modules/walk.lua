-- A walk over a tenant's tasks in one section of the order, from a place in it.
--
-- ARGV    those of shard (of tenants the one), then before the verb's own: section (due, leased, done, dead), at and id
--         of the place; then of the tasks that are meant: status (its letter in a record), kind, group, text of the
--         error, of which # matches any text ("" for any of each), and since when (epoch ms) a task is there, where
--         it is scheduled or leased, or is ended
--
-- section, key                      the section, and its sorted set
-- group                             that of the tasks that are meant, "" for any

local LOOK = 500 -- entries

local at, id, own, live, status, kind, error, since
local parts -- of the error's text

function walk.begin()
  walk.section, at, id, status, kind, walk.group, error, since = unpack(ARGV, shard.FIRST, shard.FIRST + 7)
  shard.FIRST = shard.FIRST + 8
  own, since, live = shard.TENANT .. '/', tonumber(since), walk.section == 'due' or walk.section == 'leased'
  parts = {}
  for part in string.gmatch(error, '[^#]+') do
    parts[#parts + 1] = part
  end
  local sections = { due = shard.DUE[shard.TENANT], leased = shard.LEASED, done = shard.DONE, dead = shard.DEAD }
  walk.key = sections[walk.section]
end

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
  local key = walk.key
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

-- The place after what was looked at, in words of this tenant's alone: another's ids are not shown.
function walk.place(score, sid)
  if sub(sid, 1, #own) == own then
    return { score, sub(sid, #own + 1) }
  elseif less(sid, own) then
    return { score, '' }
  end
  return { values.text_of(tonumber(score) + 1), '' }
end

-- True if a task of the tenant comes after a place; of a group, ids alone are in order.
function walk.is_behind(sid, score, last_at, last_id)
  score = walk.group == '' and tonumber(score) or last_at
  return score > last_at or (score == last_at and less(own .. last_id, sid))
end

-- The entries of the section after the place, {stored id, at...}, and how far that is, nil where it is all.
function walk.entries()
  local start = rank_after(own .. id)
  local flat = call('ZRANGE', walk.key, start, start + LOOK - 1, 'WITHSCORES')
  return flat, #flat == 2 * LOOK and walk.place(flat[#flat], flat[#flat - 1]) or nil
end

-- Those of some stored ids that are in the section, {stored id, at...}.
function walk.here(sids)
  local flat = {}
  for i, score in ipairs(#sids > 0 and call('ZMSCORE', walk.key, unpack(sids)) or {}) do
    if score then
      values.push(flat, sids[i], score)
    end
  end
  return flat
end

-- The same as `entries` of a group, whose place is an id alone.
local function entries_of_group()
  local group = walk.group
  local after = id == '' and '[' .. own .. group .. '\0' or '(' .. layout.group_member(own .. id, group)
  local sids = {}
  for i, member in ipairs(call('ZRANGEBYLEX', shard.GROUPS, after, '(' .. own .. group .. '\1', 'LIMIT', 0, LOOK)) do
    sids[i] = match(member, '%z(.*)$')
  end
  return walk.here(sids), #sids == LOOK and walk.place('0', sids[#sids]) or nil
end

-- The entries of the filtered group, or of the whole section.
function walk.meant()
  if walk.group == '' then
    return walk.entries()
  end
  return entries_of_group()
end

-- True if a record's error has all parts of the filter `error`, in their order.
local function has_error(r)
  local text, from = record.error_of(r), 1
  for _, part in ipairs(parts) do
    local _, last = string.find(text, part, from, true)
    if not last then
      return false
    end
    from = last + 1
  end
  return true
end

-- Time of the add of a task that is not over, else of its end.
function walk.began(r, score)
  return live and r.created or tonumber(score)
end

-- True if a record passes all filters.
function walk.fits(sid, r, score)
  local by_end, kind_end = record.ends_of(r.rest)
  return (status == '' or r.status == byte(status))
    and (kind == '' or kind == sub(r.rest, by_end + 1, kind_end))
    and (walk.group == '' or (walk.group == record.group_of(r.rest) and not record.is_notification(sid)))
    and walk.began(r, score) >= since
    and (#parts == 0 or has_error(r))
end

-- True if there is no filter but the status.
function walk.is_for_all()
  return kind .. walk.group .. error == '' and since == 0
end

-- Calls `look` with each of these of the tenant's: stored id, at, record as it stands. It stops once `look` answers
-- that there is room for no more, or once what was read weighs so many bytes. Answers how far it came, nil where that
-- is the end.
function walk.each(flat, most, look)
  local looked, count = 0, #flat / 2
  while looked < count do
    local sids = {}
    for i = looked + 1, math.min(looked + record.piece(looked), count) do
      sids[#sids + 1] = flat[2 * i - 1]
    end
    for i, data in ipairs(call('HMGET', shard.TASKS, unpack(sids))) do
      local sid, score, more = sids[i], flat[2 * (looked + i)], true
      if sub(sid, 1, #own) == own then
        more = look(sid, score, data)
      else
        shard.weight = shard.weight + #(data or '')
      end
      if not more or shard.weight >= most then
        return walk.place(score, sid)
      end
    end
    looked = looked + #sids
  end
end
