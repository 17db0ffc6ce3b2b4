-- Lines of a queue's history: a minute that is over is added to the lines of minutes, hours and days. Their layout is in
-- ledger/queue_history.py, which reads them.

local UNITS = { 1, 60, 1440 } -- minutes in a line of each kind
local KEPT = { 60, 168, 90 } -- how many of a kind
local BYTES = { 890, 1530, 760 } -- of a kind at the most
local NAMES = { 'minutes', 'hours', 'days' }
local WIDEST = 128 -- how many lines are one at the most
local PLACES = 102 -- numbers of a line
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
    if at + size - 1 > #text then
      error('a line is cut off')
    end
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

local function bounded(found, most)
  local text = text_of(found)
  while #text > most do
    join_two(found)
    text = text_of(found)
  end
  return text
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
  return bounded(found, most)
end

-- The lines of two texts in one: those that overlap become one.
local function merged(text, other, most)
  local every, found = read(text), {}
  for _, line in ipairs(read(other)) do
    every[#every + 1] = line
  end
  table.sort(every, function(a, b)
    return a.last > b.last
  end)
  for _, line in ipairs(every) do
    local newer = found[#found]
    if newer and line.last > newer.last - newer.width then
      local sums, first = {}, math.min(newer.last - newer.width, line.last - line.width)
      add_body(sums, newer.body)
      add_body(sums, line.body)
      newer.width, newer.body = math.min(newer.last - first, WIDEST), body_of(sums)
    else
      found[#found + 1] = line
    end
  end
  return found[1] and bounded(found, most) or ''
end

-- Numbers by place of entries: of each a place and a number.
local function sums_of(entries)
  local sums = {}
  for at = 6, #entries - 3, 4 do
    local place, number = unpack_struct(numbers.ENTRY, entries, at)
    sums[place] = (sums[place] or 0) + number
  end
  return sums
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
  local names, counts = {}, {}
  for bucket, count in pairs(late) do
    names[#names + 1], counts[#counts + 1] = slot % SLOTS .. ':' .. bucket, count
  end
  if names[1] then
    local set = {}
    for i, known in ipairs(call('HMGET', shard.LATE, unpack(names))) do
      values.push(set, names[i], values.text_of(counts[i] + (known or 0)))
    end
    call('HSET', shard.LATE, unpack(set))
  end
end

-- The numbers of a line, of those of a minute; and lateness as its own key has it: bucket -> how many.
local function line_of(entries)
  local numbers_of, late = {}, {}
  for place, number in pairs(sums_of(entries)) do
    if place >= numbers.LATE then -- entries have eight buckets for each
      local bucket = place - numbers.LATE
      late[bucket] = number
      place = numbers.LATE + math.min(math.floor(bucket / 8), numbers.LAST_BUCKET)
    end
    numbers_of[place] = (numbers_of[place] or 0) + number
  end
  return numbers_of, late
end

local function add_minute()
  local was = unpack_struct('>I4', shard.NUMBERS)
  local numbers_of, late = line_of(shard.NUMBERS)
  count_late(was, late)
  local texts, written = call('HMGET', shard.HISTORY, unpack(NAMES)), {}
  for i, unit in ipairs(UNITS) do
    local at = math.floor(was / unit)
    values.push(written, NAMES[i], with_numbers(texts[i] or '', at, numbers_of, KEPT[i], BYTES[i]))
  end
  call('HSET', shard.HISTORY, unpack(written))
end

-- Adds the minute that was counted last to the lines, and begins another. What another program has left in the place of
-- numbers is forgotten: it may hold up no task.
function lines.close(minute)
  local begun = minute .. '\0' -- no entry is summed up
  if #shard.NUMBERS > 5 then
    if not pcall(add_minute) then
      call('DEL', shard.HISTORY)
    end
    call('HSET', shard.META, 'numbers', begun)
  end
  shard.NUMBERS = begun
end

-- Adds the history of another shard, with the minute that it counted.
function lines.take_in(theirs, entries)
  local mine, written = call('HMGET', shard.HISTORY, unpack(NAMES)), {}
  for i, unit in ipairs(UNITS) do
    local text = merged(mine[i] or '', theirs[i], BYTES[i])
    if #entries > 5 then
      local at = math.floor(unpack_struct('>I4', entries) / unit)
      text = merged(text, with_numbers('', at, (line_of(entries)), KEPT[i], BYTES[i]), BYTES[i])
    end
    if text ~= '' then
      values.push(written, NAMES[i], text)
    end
  end
  values.in_pieces('HSET', shard.HISTORY, written)
end
