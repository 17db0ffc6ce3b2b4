-- Leases that lapse, and deliveries that nobody begins. A script requires it where there are any.

-- Deliveries that come to nothing. ------------------------------------------------------------------------------------

local MOST_STRIKES = 20 -- deliveries of one run that its target did not begin though it was free
local FIRST_DELAY, LONGEST_DELAY, LONGEST_BUSY = 1000, 300000, 30000 -- ms

-- The last entry of a log: its letter, its run and its place; nil where there is none.
local function last_of(log)
  local at, last = 3, nil
  while at <= #log do
    last, at = at, at + fields.ENTRY_SIZE + unpack_struct('>I2', log, at + fields.ENTRY_LENGTH)
  end
  if not last then
    return nil
  end
  local letter, size = byte(log, last), #log - last + 1
  return letter, size >= fields.ENTRY_SIZE + 4 and unpack_struct('>I4', log, last + fields.ENTRY_SIZE), last
end

-- Moves the entry with this letter to the log's end, if the log ends in one entry of each kind for one run. So both
-- kinds of deliveries in a row are counted, however they alternate.
local function bring_last(r, outcome)
  local body, state, result, log = record.split(r.rest)
  local other = outcome == fields.RAN_RELEASE and fields.RAN_UNDELIVERED or fields.RAN_RELEASE
  local letter, run, at = last_of(log)
  if letter ~= other or run ~= r.run then
    return
  end
  local before = sub(log, 1, at - 1)
  local letter_before, run_before, at_before = last_of(before)
  if letter_before == outcome and run_before == r.run then
    log = sub(log, 1, at_before - 1) .. sub(log, at) .. sub(log, at_before, at - 1)
    r.rest = record.join(body, state, result, log)
  end
end

-- A delivery that was not begun is scheduled again, later each time, with all its attempts. A strike, which is one that
-- the target was free to begin, may be its end; one that waited for a busy target is none, however often. With `soon`
-- it keeps its due time after the first strike.
function lapses.undelivered(r, strike, detail, soon)
  local outcome = strike and fields.RAN_UNDELIVERED or fields.RAN_RELEASE
  bring_last(r, outcome)
  local times = record.times_in_a_row(r, outcome) + 1
  local dies = strike and times >= MOST_STRIKES
  if not strike then
    busy.halve(r)
  end
  record.remember(r, outcome, dies and 'undelivered: ' .. detail or detail)
  local expires = not dies and leases.expired(r)
  if expires then -- a wait is no error: what it died of is one
    record.remember_expired(r)
  end
  if r.target then -- what was claimed ahead may have begun unseen: its run's number is not used again
    leases.end_delivery(r)
  end
  if dies or expires then
    r.status = fields.DIED
    return false
  end
  local longest, delays = strike and LONGEST_DELAY or LONGEST_BUSY, soon and times - 1 or times
  r.status = fields.SCHEDULED
  if delays > 0 then
    r.due = shard.NOW + math.min(FIRST_DELAY * 2 ^ (delays - 1), longest)
  end
  return true
end

-- Lapsed leases. ------------------------------------------------------------------------------------------------------

-- A bell rings for the end of each lease, so a lapsed one is taken back at once. If it was not, the server stood still,
-- or nobody could reach it. Then the ends of its tasks and its extensions are still on their way.
local UNATTENDED = 2000 -- ms after its end from which on a lease lapsed unattended
local SPARED_FOR = 5000 -- ms that such a lease gets once: its worker asks again within a second

-- When a task runs again whose lease lapsed: at once, which is from the lease's end on; where its run before lapsed
-- too, once its policy's wait is over.
local function due_after_lapse(r, ended)
  return record.times_in_a_row(r, fields.RAN_LAPSED) > 0 and shard.NOW + leases.backoff(r) or ended
end

-- Ends the run of a lapsed lease. Answers whether the task lives.
local function end_run(r, ended)
  if r.target and busy.is_busy(r) then
    return lapses.undelivered(r, false, 'waited for ' .. r.target .. ', which was busy with other tasks')
  elseif r.target then
    return lapses.undelivered(r, true, 'handed over to ' .. r.target .. ', but the function did not begin it')
  end
  if r.ahead then
    return lapses.undelivered(r, true, 'claimed ahead by a worker that ended before it began', true)
  end
  local due = due_after_lapse(r, ended)
  record.remember(r, fields.RAN_LAPSED, 'the lease lapsed')
  local lives = leases.retry_or_die(r, due)
  if lives then
    shard.entries = shard.entries .. numbers.ONE_RETRIED
  end
  return lives
end

-- Puts a task whose lease lapsed where it belongs, or its successor in its place. Answers how many died.
local function take_back(sid, tenant, r, ended)
  r.last = 0
  if r.target then
    places.free_place(sid, r.target)
  end
  local successor = record.has_successor(r) and history.succeed(sid, r)
  local dies = not successor and not end_run(r, ended)
  record.put(sid, successor or r)
  tenants.rehead(tenant)
  notifications.add(dies and notifications.of(sid, r) or {})
  return dies and 1 or 0
end

-- The same where its record cannot be read: it can be neither run nor ended, and lies with the dead where it is there.
local function take_back_unread(sid, data)
  places.free_lost_place(sid)
  if data then
    call('ZADD', shard.DEAD, shard.NOW, sid)
    record.note_end(sid, 0)
    shard.entries = shard.entries .. numbers.ONE_DEAD
  end
  return data and 1 or 0
end

-- Those of some lapsed leases, {stored id, end...}, that are to be taken back. The others lapsed unattended, and get
-- some seconds more, once. `spared` in meta is the end that they get.
local function without_unattended(lapsed)
  local known, kept, spared = tonumber(call('HGET', shard.META, 'spared') or 0), {}, {}
  local goes_on = known > shard.NOW and known <= shard.NOW + SPARED_FOR
  local ends_at = goes_on and known or shard.NOW + SPARED_FOR
  for i = 1, #lapsed, 2 do
    local ended = tonumber(lapsed[i + 1])
    if ended ~= known and shard.NOW - ended > UNATTENDED then
      values.push(spared, values.text_of(ends_at), lapsed[i])
    else
      values.push(kept, lapsed[i], ended)
    end
  end
  if spared[1] then
    call('ZREM', shard.LEASED, '') -- this may be the script's first write, and memory short
    values.in_pieces('ZADD', shard.LEASED, spared)
    call('HSET', shard.META, 'spared', values.text_of(ends_at))
  end
  return kept
end

local SLOT, SLOTS = 300000, 13 -- of ledger/queue.py

-- Adds runs that ended without a settle to those of the last hour in meta. Each slot has its number, how many they
-- were, and how many of them a target had begun.
local function count_runs(runs, at_target)
  local slot, slots = math.floor(shard.NOW / SLOT), {}
  for at, before, before_at_target in string.gmatch(call('HGET', shard.META, 'lapsed') or '', '(%d+):(%d+):(%d+)') do
    at = tonumber(at)
    if at == slot then
      runs, at_target = runs + before, at_target + before_at_target
    elseif at < slot and at > slot - SLOTS then -- a later one is of a clock that was put back
      slots[#slots + 1] = at .. ':' .. before .. ':' .. before_at_target
    end
  end
  slots[#slots + 1] = slot .. ':' .. runs .. ':' .. at_target
  call('HSET', shard.META, 'lapsed', table.concat(slots, ' '))
end

-- Takes back lapsed leases, {stored id, end...}, and no more once their records weigh `most` bytes. Answers how many,
-- how many of them died, how many runs ended so, how many of those a target had begun, and whether it stopped at that
-- bound. It adds tenants that it could not serve to `want`. It begins with ZREM, which runs where memory is short.
function lapses.reclaim(lapsed, want, most)
  lapsed = without_unattended(lapsed)
  local reclaimed, died, stopped, ended, runs, at_target = 0, 0, false, {}, 0, 0
  for i = 1, #lapsed, 2 do
    local sid = lapsed[i]
    local tenant = tenants.tenant_of(sid)
    if shard.weight >= most then
      stopped = true
      break
    elseif not shard.DUE[tenant] then
      want[#want + 1] = tenant
    else
      call('ZREM', shard.LEASED, sid)
      local data = call('HGET', shard.TASKS, sid)
      local r = record.open(data)
      if r and not (r.target or r.ahead) then -- a run: of these nobody is known to have begun it
        runs, at_target = runs + 1, at_target + (r.delivery and 1 or 0)
      end
      died = died + (r and take_back(sid, tenant, r, lapsed[i + 1]) or take_back_unread(sid, data))
      ended[tenant] = (ended[tenant] or 0) - 1
      reclaimed = reclaimed + 1
    end
  end
  if next(ended) then
    leases.count_running(ended, 0)
  end
  if runs > 0 then
    count_runs(runs, at_target)
  end
  return reclaimed, died, runs, at_target, stopped
end
