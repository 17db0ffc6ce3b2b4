-- Fires schedules: adds the occurrences of each and moves it on, if it is as its caller read it.
--
-- KEYS    as in modules/shard.lua, with the due sets of schedules and of their tenants
-- ARGV    those of shard, then: the newest time by which any of them was computed, three more of add.lua's, which say
--         nothing here
--         then for each schedule: its stored id, that of the schedule whose occurrences it adds, how its caller read it
--         ("<generation> <due> <version> <when it fires next> <overlap's first letter, or h where it is fired by hand>
--         <how many occurrences>", or "" where it cannot be read: then it is put off), head and recent of its state
--         (modules/progress.lua) with a bar between them, 8 bytes that are this firing's alone; and of each occurrence
--         what add.lua takes of a task
-- RETURNS {now, bell_at, {1 fired, 0 it was not as it was read, or waits; by hand also -12 to -17 of add.lua, and
-- nothing
--         is done...}, for how many ms the tenant is then to wait}; fewer than schedules where its bytes ran out

local SCHEDULES, BY = '*', 'schedule'
local ITEM = 7
local FIRED, STALE = 1, 0
local SOON, LATE = 1000, 60000 -- ms until a backfill looks again that waits for the end of an occurrence
local MINUTE = 60000 -- ms that the clock may be behind the time by which a firing was computed
local REST, LONGEST_REST = 1000, 300000 -- ms: that after a refusal is twice the one before, the first two seconds
local DOUBLINGS = 9 -- after which it is the longest
local ALLOW, SKIP, QUEUE, REPLACE, BY_HAND = 97, 115, 113, 114, 104 -- a s q r h
local FLAGGED = fields.OCCURRENCE / fields.CAME -- as `batch.new_record` takes a flag
local AT_ONCE = 50 -- records that are read by one command

local is_of_wrong_clock = tonumber(ARGV[shard.FIRST]) > shard.NOW + MINUTE -- which was put back meanwhile
local touched = {} -- tenants whose tasks ended here
local met = {} -- schedules of which occurrences may be in the batch and not written yet
local refused, wait -- what a quota says to the latest occurrence
local own_fence -- the next one for a schedule: those for tasks are counted up to them
local used_up = {} -- tenants whose adds of the minute are, so that each further one is refused without a question
local stands = {} -- name -> record as it was read, or false, of what this call is about; or as it is to be written
local written, moved = {}, {} -- records of schedules, and their places among the due, to be written at the end

-- Reads all that this call is about, many at a time.
local function read_all(names)
  for first = 1, #names, AT_ONCE do
    local last = math.min(first + AT_ONCE - 1, #names)
    for i, data in ipairs(call('HMGET', shard.TASKS, unpack(names, first, last))) do
      stands[names[first + i - 1]] = data
    end
  end
end

-- Puts a schedule off that cannot be read, where it is due.
local function put_off(sid)
  local at = tonumber(call('ZSCORE', shard.DUE[SCHEDULES], sid) or nil)
  if at and at <= shard.NOW then
    call('ZADD', shard.DUE[SCHEDULES], shard.NOW + record.PUT_OFF, sid)
  end
  return STALE
end

-- The occurrences that have not ended, {time, record...}; those that have, without a word, are struck off. The one that
-- waits is not among them.
local function look(of, state)
  batch.flush()
  progress.open_waiting(of, state)
  local found = {}
  for time in string.gmatch(state.live, '%S+') do
    local r = progress.open_live(of, time)
    if r then
      values.push(found, time, r)
    else
      progress.strike(state, time)
    end
  end
  if #found == 0 and state.waiting ~= '' then
    progress.release(of, state)
    local r = state.live ~= '' and progress.open_live(of, state.live)
    if r then
      values.push(found, state.live, r)
    end
  end
  return found
end

-- Cancels an occurrence for the sake of a later one.
local function cancel(of, state, time, r, letter)
  local sid = sub(of, 3) .. '@' .. time
  cancels.cancel(sid, r, BY)
  progress.became(state, time, letter)
  progress.strike(state, time)
  shard.occurred, touched[tenants.tenant_of(sid)] = false, true -- its schedule knows: announce.ends has nothing left
end

-- Adds the occurrence at this place, unless a quota refuses it; `instead` is the record whose place it takes, if any.
local function add(sid, at, instead)
  local tenant = tenants.tenant_of(sid)
  refused, wait = used_up[tenant], nil
  if not refused then
    refused, wait = duplicates.refusal(sid, at, instead)
    used_up[tenant] = (wait or 0) > 0 and refused or nil
  end
  if refused then
    return false
  end
  local due, deadline = batch.due_and_deadline(at)
  stands[sid] = batch.put(sid, at, due, batch.new_record(at, FLAGGED, due, deadline, shard.NOW))
  if shard.QUOTAS then
    duplicates.count_bytes(sid, at, batch.CREATED)
  end
  return true
end

-- Adds it to wait for the end of those that are live, in the place of one that waits already.
local function add_waiting(of, state, sid, at, time)
  local before = progress.open_waiting(of, state)
  ARGV[at + 2] = values.text_of(fields.NEVER)
  if not add(sid, at, before) then
    return 0
  end
  local skipped = 0
  if before then
    cancel(of, state, state.waiting, before, 'S')
    skipped = 1
  end
  state.waiting = time
  return skipped, true
end

-- What becomes of the occurrence at this place: answers how many were skipped for it, and whether it was added itself.
-- `state` is that of the schedule whose occurrence it is.
local function occur(of, state, overlap, sid, at)
  local time = progress.time_of(sid)
  refused, wait = nil, nil
  if stands[sid] then -- run by hand, or by a backfill
    if progress.open_live(of, time) and state.waiting ~= time then
      progress.add_live(state, time)
    end
    return 0, true
  end
  local found = (overlap == ALLOW or overlap == BY_HAND) and {} or look(of, state)
  if #found > 0 and overlap == SKIP then
    return 0, false
  elseif #found > 0 and overlap == QUEUE then
    return add_waiting(of, state, sid, at, time)
  elseif not add(sid, at, found[2]) then
    return 0, false
  end
  for i = 1, overlap == REPLACE and #found or 0, 2 do
    cancel(of, state, found[i], found[i + 1], 'C')
  end
  local waits = overlap == REPLACE and progress.open_waiting(of, state)
  if waits then
    cancel(of, state, state.waiting, waits, 'C')
  end
  progress.add_live(state, time)
  return 0, true
end

-- Takes over what has ended, or lives again, since the schedule was read.
local function take_over(state, recent)
  for _, at, letter in progress.remembered(recent) do
    if match(letter, '[LDXC]') then
      progress.became_at(state, at, letter)
    end
  end
end

local function write(sid, r, state)
  progress.write(r, state)
  stands[sid] = record.close(r)
  values.push(written, sid, stands[sid])
end

local function draw_own()
  own_fence = own_fence - 1
  return own_fence + 1
end

-- When a schedule fires next whose occurrence was refused, the `attempt - 1`th time in a row.
local function rested(r, next_at)
  local rest = REST * 2 ^ math.min(r.attempt - 1, DOUBLINGS)
  return math.max(next_at, shard.NOW + math.min(rest, LONGEST_REST))
end

-- The schedule is written as it is from now on. A run by hand leaves it where it stands among the due: the sweep makes
-- one due before its time where a wrong clock may have computed that.
local function move_on(sid, r, state, next_at, mine, by_hand)
  r.rest, r.due, r.generation = mine .. sub(r.rest, #mine + 1), next_at, draw_own()
  write(sid, r, state)
  if not by_hand then
    values.push(moved, values.text_of(next_at), sid)
  end
end

-- A backfill that runs one after another looks again for the end of the newest that lives, later the older that is.
local function wait_for(newest, sid, r)
  r.due = shard.NOW + math.floor(math.min(math.max((shard.NOW - newest.created) / 10, SOON), LATE))
  stands[sid] = record.close(r)
  values.push(written, sid, stands[sid])
  values.push(moved, values.text_of(r.due), sid)
  return STALE
end

-- Whether it is as its caller read it.
local function is_same(r, state, known)
  local generation, due, version = match(known, '^(%d+) (%d+) (%d+) ')
  return r.generation == tonumber(generation) and r.due == tonumber(due) and match(state.head, '^%S+') == version
end

-- Draws the fences of all that this call may add or move on, once there is any.
local function draw_all(count)
  if not own_fence then
    batch.draw_fences(count)
    own_fence = shard.FENCE
  end
end

local function fire(sid, of, known, given, mine, at, fences_left)
  if is_of_wrong_clock then -- else what it adds would be due in that future, and no sweep would know
    return STALE
  end
  local data = stands[sid]
  local r = record.open(data)
  local state = r and progress.read(r)
  if known == '' or (data and not state) then
    return put_off(sid)
  elseif state and sub(r.rest, 1, #mine) == mine then
    return FIRED -- sent again
  elseif not state or not is_same(r, state, known) then
    return STALE
  end
  local home, home_state = r, state
  if of ~= sid then
    home = record.open(stands[of])
    home_state = home and progress.read(home)
    if not home_state or home.created ~= r.created then -- it was deleted, and what fills it goes with it
      record.delete(sid, data)
      return STALE
    end
  end
  local next_at, overlap, count = match(known, '(%d+) (%a) (%d+)$')
  if of ~= sid and byte(overlap) == QUEUE then
    local found = look(of, home_state)
    if #found > 0 then
      write(of, home, home_state)
      return wait_for(found[#found], sid, r)
    end
  end
  local before = state.recent
  state.head, state.recent = match(given, '^([^|]*)|(.*)$')
  take_over(state, before)
  if met[of] then
    batch.flush()
  end
  met[of] = true
  draw_all(fences_left)
  local skipped, over_quota, any_added = 0, false, false
  for i = at, at + (count - 1) * ITEM, ITEM do
    local others, added = occur(of, home_state, byte(overlap), ARGV[i], i)
    if not added and byte(overlap) == BY_HAND then
      return refused -- before anything is written
    elseif not added then
      over_quota = over_quota or refused
      progress.became(state, progress.time_of(ARGV[i]), 'S')
    end
    any_added = any_added or added
    skipped = skipped + others + (added and 0 or 1)
  end
  next_at = tonumber(next_at)
  if byte(overlap) ~= BY_HAND and (any_added or over_quota) then
    r.attempt = (any_added and 1 or r.attempt) + (over_quota and 1 or 0)
    next_at = over_quota and rested(r, next_at) or next_at
  end
  if skipped > 0 then
    local front, so_far, back = match(home_state.head, '^(%S+ %S+ %S+) (%d+) (.*)$')
    home_state.head = front .. ' ' .. values.text_of(so_far + skipped) .. ' ' .. back
    home.generation = draw_own() -- who has read it fires with the count of before
  end
  if of ~= sid then
    write(of, home, home_state)
  end
  if of ~= sid and match(state.head, '^%S+ (%S+)') == '-' then -- it has added all
    record.delete(sid, data)
  else
    move_on(sid, r, state, next_at, mine, byte(overlap) == BY_HAND)
  end
  return FIRED
end

-- Where each schedule begins in ARGV, the fences that it and those behind it may need, and all names that are asked
-- for.
local starts, fences_from, names, place = {}, {}, {}, shard.FIRST + 4
while place <= #ARGV do
  local sid, of, known = unpack(ARGV, place, place + 2)
  local count = tonumber(match(known, '%d+$') or 0)
  starts[#starts + 1] = place
  fences_from[#starts] = count + 2
  values.push(names, sid, of ~= sid and of or nil)
  for at = place + 5, place + 4 + count * ITEM, ITEM do
    names[#names + 1] = ARGV[at]
  end
  place = place + 5 + count * ITEM
end
for i = #starts - 1, 1, -1 do
  fences_from[i] = fences_from[i] + fences_from[i + 1]
end
read_all(names)

local replies = {}
for i, at in ipairs(starts) do
  if shard.weight < record.BYTES then
    local sid, of, known, given, mine = unpack(ARGV, at, at + 4)
    replies[i] = fire(sid, of, known, given, mine, at + 5, fences_from[i])
  end
end

local made_due = false
for tenant, due in pairs(batch.flush()) do
  touched[tenant], made_due = true, made_due or due <= shard.NOW
end
values.in_pieces('HSET', shard.TASKS, written)
values.in_pieces('ZADD', shard.DUE[SCHEDULES], moved)
for tenant in pairs(touched) do
  tenants.rehead(tenant)
end
tenants.rehead(SCHEDULES)
if shard.ended then
  require 'waiters'
  waiters.publish(shard.ended)
end
local minute = pack('>I4', math.floor(shard.NOW / numbers.MINUTE))
if sub(shard.NUMBERS, 1, 4) ~= minute then
  require 'lines'
  lines.close(minute)
end
numbers.write()
return { shard.NOW, bell.hang(made_due), replies, wait or 0 }
