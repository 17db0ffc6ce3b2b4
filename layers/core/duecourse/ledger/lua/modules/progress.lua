-- Progress of schedules: what a schedule's state keeps of its occurrences, and how their ends change it.
--
-- A schedule's state is JSON text, one string of four parts with a bar between them. What callers ask for is not in it,
-- but in its payload, which no script reads:
--   head     version, next nominal time ("-" for none), fired, skipped, missed, version of the time zones (with the
--   former
--            one, and the nominal time that it gave, where a later one gave another)
--   recent   of each of the last occurrences, oldest first: how much later its nominal time is than that of the one
--            before (of the first the time itself, and nothing where it is as much as before), "+" and how many missed
--            times it stands for besides, where there are any, and a letter (BECAME)
--   live     nominal times of occurrences that have not ended, as in their ids
--   waiting  nominal time, as in its id, of the one that waits for the end of those; it is due at fields.NEVER
-- A time in head and recent is its seconds in hexadecimal digits, with "." and likewise its milliseconds where it has
-- any. An occurrence's id is its schedule's with "@" and its nominal time in UTC.

local MOST_LIVE = 32 -- the newest, which a change of the overlap finds
local SKIPPED = 'S'
local BECAME = { [fields.SCHEDULED] = 'L', [fields.FINISHED] = 'D', [fields.DIED] = 'X', [fields.CANCELLED] = 'C' }

-- The nominal time of an occurrence as its id has it, nil where that is no occurrence's.
function progress.time_of(sid)
  return match(sid, '@([^@]*)$')
end

-- The stored id of an occurrence's schedule.
function progress.schedule_of(sid)
  return '*/' .. match(sid, '^(.*)@')
end

-- The same as epoch milliseconds; nil where it is none.
local function instant_of(time)
  local year, month, day, hour, minute, second, ms =
    match(time or '', '^(%d%d%d%d)%-(%d%d)%-(%d%d)T(%d%d):(%d%d):(%d%d)%.?(%d*)Z$')
  if not year then
    return nil
  end
  local march = (month + 9) % 12 -- a year that begins with March ends with its leap day
  local y = year - math.floor(march / 10)
  local days = 365 * y + math.floor(y / 4) - math.floor(y / 100) + math.floor(y / 400)
    + math.floor((306 * march + 5) / 10) + day - 719469
  return (days * 86400 + hour * 3600 + minute * 60 + second) * 1000 + (tonumber(ms) or 0)
end

-- Goes through `recent`: the place of each letter, its nominal time in epoch milliseconds, and the letter.
function progress.remembered(recent)
  local at, gap, find = 0, 0, string.gmatch(recent, '(%-?)([%l%d]*)%.?([%l%d]*)%+?%d*()(%u)')
  return function()
    local sign, seconds, ms, place, letter = find()
    if place then
      if seconds ~= '' then
        gap = (tonumber(seconds, 16) * 1000 + (tonumber(ms, 16) or 0)) * (sign == '' and 1 or -1)
      end
      at = at + gap
    end
    return place, at, letter
  end
end

-- A schedule's state, nil where it cannot be read.
function progress.read(r)
  local _, text = record.split(r.rest)
  local head, recent, live, waiting = match(text, '^"([^|]*)|([^|]*)|([^|]*)|([^|]*)"$')
  return head and { head = head, recent = recent, live = live, waiting = waiting }
end

function progress.write(r, state)
  local body, _, result, log = record.split(r.rest)
  local text = '"' .. table.concat({ state.head, state.recent, state.live, state.waiting }, '|') .. '"'
  r.rest = record.join(body, text, result, log)
end

local function words_without(words, gone)
  local kept = {}
  for word in string.gmatch(words, '%S+') do
    if word ~= gone then
      kept[#kept + 1] = word
    end
  end
  return kept
end

-- Notes what became of the occurrence of an instant, where it is among the last.
function progress.became_at(state, instant, letter)
  for place, at in progress.remembered(state.recent) do
    if at == instant then
      state.recent = sub(state.recent, 1, place - 1) .. letter .. sub(state.recent, place + 1)
      return
    end
  end
end

function progress.became(state, time, letter)
  progress.became_at(state, instant_of(time), letter)
end

-- Notes an occurrence that has not ended.
function progress.add_live(state, time)
  local words = words_without(state.live, time)
  words[#words + 1] = time
  state.live = table.concat(words, ' ', math.max(1, #words - MOST_LIVE + 1))
end

-- Notes the end of an occurrence.
function progress.strike(state, time)
  state.live = table.concat(words_without(state.live, time), ' ')
  state.waiting = state.waiting ~= time and state.waiting or ''
end

-- The record of an occurrence that has not ended, nil where there is none. `of` is its schedule's stored id.
function progress.open_live(of, time)
  local sid = sub(of, 3) .. '@' .. time
  local r = record.open(call('HGET', shard.TASKS, sid))
  local is_live = r and (r.status == fields.SCHEDULED or r.status == fields.LEASE)
    and r.flags % (2 * fields.OCCURRENCE) >= fields.OCCURRENCE
  return is_live and r or nil, sid
end

-- The record of the occurrence that waits, and its stored id; nil where none does. One that was moved waits no more.
function progress.open_waiting(of, state)
  local time = state.waiting
  if time == '' then
    return nil
  end
  local r, sid = progress.open_live(of, time)
  if r and r.status == fields.SCHEDULED and r.due >= fields.NEVER then
    return r, sid
  end
  state.waiting = ''
  if r then
    progress.add_live(state, time)
  end
end

-- The occurrence that waits is due now, where none is live any more.
function progress.release(of, state)
  local time = state.waiting
  local r, sid = nil, nil
  if state.live == '' then
    r, sid = progress.open_waiting(of, state)
  end
  if r then
    local tenant = tenants.tenant_of(sid)
    state.waiting = ''
    progress.add_live(state, time)
    if r.deadline > 0 and r.flags % (2 * fields.COUNTS) >= fields.COUNTS then
      r.deadline = r.deadline - r.due + shard.NOW
    end
    r.due = shard.NOW
    call('ZADD', shard.DUE[tenant], shard.NOW_TEXT, sid)
    call('HSET', shard.TASKS, sid, record.close(r))
    tenants.rehead(tenant)
    shard.woken = true
  end
end

-- Tells schedules which of their occurrences have ended, and which that had ended live again: {stored id, status...}.
function progress.tell(occurred)
  local found = {}
  for i = 1, #occurred, 2 do
    local sid, time = occurred[i], progress.time_of(occurred[i])
    local of = time and progress.schedule_of(sid)
    if of and not found[of] then
      local r = record.open(call('HGET', shard.TASKS, of))
      found[of] = { r = r, state = r and progress.read(r) }
    end
    local state = of and found[of].state
    if state then
      progress.became(state, time, BECAME[occurred[i + 1]])
      if occurred[i + 1] == fields.SCHEDULED then
        progress.add_live(state, time)
      else
        progress.strike(state, time)
      end
    end
  end
  for of, one in pairs(found) do
    if one.state then
      progress.release(of, one.state)
      progress.write(one.r, one.state)
      call('HSET', shard.TASKS, of, record.close(one.r))
    end
  end
end
