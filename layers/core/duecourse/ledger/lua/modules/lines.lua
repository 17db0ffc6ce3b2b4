-- Lines of a queue's history: a minute that is over is added to the lines of minutes, hours and days. Their layout is in
-- ledger/queue_history.py, which reads them.

local UNITS = { 1, 60, 1440 } -- minutes in a line of each kind
local KEPT = { 60, 168, 90 } -- how many of a kind
local BYTES = { 760, 1270, 760 } -- of a kind at the most
local NAMES = { 'minutes', 'hours', 'days' }
local WIDEST = 128 -- how many lines are one at the most
local PLACES = 102 -- numbers of a line
local LATE, LAST_BUCKET = 70, 31 -- the last histogram of a line; of entries it has eight buckets for each
local SLOT, SLOTS = 5, 13 -- minutes, and how many (ledger/queue.py)

local function put_number(out, number)
  while number >= 128 do
    out[#out + 1] = string.char(number % 128 + 128)
    number = math.floor(number / 128)
  end
  out[#out + 1] = string.char(number)
end

-- The number at a place, and the place behind it.
local function number_at(text, at)
  local number, unit, part = 0, 1, byte(text, at)
  while part >= 128 do
    number, unit, at = number + (part - 128) * unit, unit * 128, at + 1
    part = byte(text, at)
  end
  return number + part * unit, at + 1
end

-- Adds what a body has to numbers by place.
local function add_body(numbers_of, body)
  local at, place = 1, -1
  while at <= #body do
    local number, skipped
    number, at = number_at(body, at)
    skipped = number % 4
    if skipped == 3 then
      skipped, at = number_at(body, at)
    end
    place = place + skipped + 1
    numbers_of[place] = (numbers_of[place] or 0) + math.floor(number / 4)
  end
end

local function body_of(numbers_of)
  local out, before = {}, -1
  for place = 0, PLACES - 1 do
    local number = numbers_of[place]
    if number then
      local skipped = place - before - 1
      put_number(out, 4 * number + math.min(skipped, 3))
      if skipped >= 3 then
        put_number(out, skipped)
      end
      before = place
    end
  end
  return table.concat(out)
end

-- The lines of a text, the newest first: the last unit of each, how many units it is wide, its body.
local function read(text)
  local found, at, last = {}, 5, text ~= '' and unpack_struct('>I4', text)
  while at <= #text do
    local span, size
    span, at = number_at(text, at)
    size, at = number_at(text, at)
    local width = span % WIDEST + 1
    found[#found + 1] = { last = last, width = width, body = sub(text, at, at + size - 1) }
    at, last = at + size, last - width - math.floor(span / WIDEST)
  end
  return found
end

local function text_of(found)
  local out = { pack('>I4', found[1].last) }
  for i, line in ipairs(found) do
    local older = found[i + 1]
    local gap = older and line.last - line.width - older.last or 0
    put_number(out, line.width - 1 + gap * WIDEST)
    put_number(out, #line.body)
    out[#out + 1] = line.body
  end
  return table.concat(out)
end

-- Makes one line of two neighbours, those that are narrowest for their age: detail fades as lines grow old. Where none
-- may be wider, the oldest line goes.
local function join_two(found)
  local best, least = nil, math.huge
  for i = 1, #found - 1 do
    local older = found[i + 1]
    local width = found[i].last - older.last + older.width
    local share = width / (found[1].last - found[i].last + 1)
    if width <= WIDEST and share <= least then
      best, least = i, share
    end
  end
  if best then
    local line, older, numbers_of = found[best], table.remove(found, best + 1), {}
    add_body(numbers_of, line.body)
    add_body(numbers_of, older.body)
    line.width, line.body = line.last - older.last + older.width, body_of(numbers_of)
  else
    found[#found] = nil
  end
end

-- Lines that are ahead, for the clock was put back, become a part of the line of this unit.
local function take_back(found, unit, numbers_of)
  while found[1] and found[1].last - found[1].width >= unit do
    add_body(numbers_of, table.remove(found, 1).body)
  end
  local newest = found[1]
  if newest and newest.last > unit then
    newest.last, newest.width = unit, newest.width - (newest.last - unit)
  end
end

-- The text with these numbers in the line of a unit; `kept` units before it, and `most` bytes, are kept.
local function with_numbers(text, unit, numbers_of, kept, most)
  local found, mine = read(text), {}
  for place, number in pairs(numbers_of) do
    mine[place] = number
  end
  take_back(found, unit, mine)
  if found[1] and found[1].last == unit then
    add_body(mine, found[1].body)
    found[1].body = body_of(mine)
  else
    table.insert(found, 1, { last = unit, width = 1, body = body_of(mine) })
  end
  while found[#found].last <= unit - kept do
    found[#found] = nil
  end
  text = text_of(found)
  while #text > most do
    join_two(found)
    text = text_of(found)
  end
  return text
end

-- Numbers by place of entries: of each a place and a number.
local function sums_of(entries)
  local sums, at = {}, 5
  while at <= #entries do
    local place, number
    place, at = number_at(entries, at)
    number, at = number_at(entries, at)
    sums[place] = (sums[place] or 0) + number
  end
  return sums
end

-- The same minute with one entry for each place.
local function summed(minute)
  local out = { minute }
  for place, number in pairs(sums_of(shard.NUMBERS)) do
    put_number(out, place)
    put_number(out, number)
  end
  return table.concat(out)
end

-- Counts the late of a minute in its slot of the last hour. Slots that were left out hold what is over an hour old, and
-- so does the one that begins.
local function count_late(minute, late)
  local slot, newest = math.floor(minute / SLOT), tonumber(call('HGET', shard.META, 'late_slot') or nil) or 0
  if next(late) and slot ~= newest then
    local stale, gone = {}, {}
    for passed = math.max(newest, slot - SLOTS) + 1, slot do
      stale[passed % SLOTS .. ''] = true
    end
    for _, field in ipairs(call('HKEYS', shard.LATE)) do
      if stale[match(field, '^%d+')] then
        gone[#gone + 1] = field
      end
    end
    values.in_pieces('HDEL', shard.LATE, gone)
    call('HSET', shard.META, 'late_slot', slot)
  end
  for bucket, count in pairs(late) do
    call('HINCRBY', shard.LATE, slot % SLOTS .. ':' .. bucket, count)
  end
end

-- Adds the minute that was counted last to the lines. Where the clock was put back, it is the current one.
local function close(minute)
  if #shard.NUMBERS <= 4 then
    return minute
  end
  local numbers_of, late, was = {}, {}, unpack_struct('>I4', shard.NUMBERS)
  was = math.min(was, (unpack_struct('>I4', minute)))
  for place, number in pairs(sums_of(shard.NUMBERS)) do
    if place >= LATE then
      local bucket = place - LATE
      late[bucket] = number
      place = LATE + math.min(math.floor(bucket / 8), LAST_BUCKET)
    end
    numbers_of[place] = (numbers_of[place] or 0) + number
  end
  count_late(was, late)
  local texts, written = call('HMGET', shard.HISTORY, unpack(NAMES)), {}
  for i, unit in ipairs(UNITS) do
    local at = math.floor(was / unit)
    values.push(written, NAMES[i], with_numbers(texts[i] or '', at, numbers_of, KEPT[i], BYTES[i]))
  end
  call('HSET', shard.HISTORY, unpack(written))
  return minute
end

-- The text to which the numbers of a minute are appended. What another program has left in the place of numbers is
-- forgotten: it may hold up no task.
function lines.make_room(minute)
  local fine, text = pcall(sub(shard.NUMBERS, 1, 4) == minute and summed or close, minute)
  if not fine then
    call('DEL', shard.HISTORY)
  end
  return fine and text or minute
end
