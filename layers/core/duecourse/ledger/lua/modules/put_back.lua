-- A clock that went ahead and was put back: what it left in the future is looked at by a pass of the sweep
-- (modules/review.lua).
--
-- Fences follow the clock, so the newest tells how far it has been. While that is ahead of the clock, `put_back` of
-- meta is "<clock>:<fence>:<reached>": the clock and the newest fence as the last sweep saw them, and how far the wrong
-- clock had been. The newest fence is set a day further then, so a clock that goes ahead once more, about as far, is
-- told by the next script from one that is right. `forgets` is "<when>:<from when on>": when a sweep last looked at
-- what ended long ago, and from when on it may be forgotten; it is there while anything has ended.
--
-- KEYS    as in shard.lua
-- ARGV    shard's

local MINUTE, HOUR, DAY = 60000, 3600000, 86400000
local PATIENCE = 600000 -- ms until a clock is believed that went on by more than a day between two sweeps
local PER_MS = 64 -- as modules/fences.lua

-- Ends of runs after which a task is due by its policy; after any other, its due time may have been given.
local BY_POLICY = {
  [fields.RAN_RETRY] = true, [fields.RAN_LAPSED] = true, [fields.RAN_RELEASE] = true, [fields.RAN_UNDELIVERED] = true,
}

local was_at -- how far the clock had been that was put back

-- Begins a pass where the clock was put back since the last sweep. Answers whether it is behind the newest fence.
function put_back.watch()
  local known = call('HGET', shard.META, 'put_back')
  local behind = shard.FENCE / PER_MS - shard.NOW
  if behind <= MINUTE and not known then
    return false
  end
  local saw, fence, reached = match(known or '', '^(%d+):(%d+):(%d+)$')
  call('ZREM', shard.LEASED, '') -- this may be the script's first write, and memory short
  if behind <= MINUTE or (saw and shard.NOW - saw > HOUR) then
    call('HDEL', shard.META, 'put_back')
    return false
  end
  if not saw or saw - shard.NOW > MINUTE or shard.FENCE - fence > PER_MS * MINUTE then
    reached = values.text_of(math.floor(shard.FENCE / PER_MS))
    call('HSET', shard.META, 'rewrite', '0')
    shard.next_fence(PER_MS * DAY)
  end
  was_at = tonumber(reached)
  call('HSET', shard.META, 'put_back', string.format('%s:%d:%s', shard.NOW_TEXT, shard.FENCE, reached))
  return true
end

-- When what ended first of all that is there ended: no sweep before that has looked at anything that ended.
local function oldest_end()
  local done = call('ZRANGE', shard.DONE, '0', '0', 'WITHSCORES')[2]
  local dead = call('ZRANGE', shard.DEAD, '0', '0', 'WITHSCORES')[2]
  return math.min(tonumber(done or nil) or math.huge, tonumber(dead or nil) or math.huge)
end

-- Whether what ended long ago may be forgotten. Not for some minutes after the clock has gone on by more than a day
-- between two sweeps, for it may be wrong.
function put_back.may_forget()
  local known, from = call('HGET', shard.META, 'forgets'), 0
  if call('ZCARD', shard.DONE) + call('ZCARD', shard.DEAD) == 0 then
    if known then
      call('HDEL', shard.META, 'forgets')
    end
    return true
  end
  local at, until_at = match(known or '', '^(%d+):(%d+)$')
  at, from = tonumber(at or oldest_end()), tonumber(until_at or 0)
  if shard.NOW - at > DAY then
    from = shard.NOW + PATIENCE
  elseif from > shard.NOW + PATIENCE then -- the clock was put back
    from = 0
  end
  if not known or from ~= tonumber(until_at) or shard.NOW < at or shard.NOW - at > HOUR then
    call('ZREM', shard.LEASED, '')
    call('HSET', shard.META, 'forgets', shard.NOW_TEXT .. ':' .. values.text_of(from))
  end
  return shard.NOW >= from
end

-- The newest entry of a log: its letter and its time.
local function newest(log)
  local at, letter, time = 3, nil, nil
  while at <= #log do
    letter, time = byte(log, at), unpack_struct('>I6', log, at + 1)
    at = at + fields.ENTRY_SIZE + unpack_struct('>I2', log, at + fields.ENTRY_LENGTH)
  end
  return letter, time
end

-- What the due time of a scheduled task was counted from, its last end or its add; nil where it may have been given as
-- an instant, which what is due within the hour is taken not to be. Then the letter of the run that ended, and whether
-- the due time may be a moment before: the end of a lease, or when a process fired the schedule whose occurrence this
-- is.
local function counted_from(r)
  local _, _, _, log = record.split(r.rest)
  local letter, at = newest(log)
  at = at or r.created
  local fired = not letter and r.flags % (2 * fields.OCCURRENCE) >= fields.OCCURRENCE
  return (BY_POLICY[letter] or r.due - at <= HOUR) and at or nil, letter, fired or letter == fields.RAN_LAPSED
end

-- A task or schedule that is due later than it may be, for the clock was ahead when that was written.
local function mend_due(sid, tenant, r)
  local from, letter, is_before = nil, nil, false
  if r and byte(sid) ~= record.SCHEDULE then
    from, letter, is_before = counted_from(r)
  end
  if not r or byte(sid) == record.SCHEDULE or r.due <= shard.NOW then -- its caller computes its next time again
    call('ZADD', shard.DUE[tenant], shard.NOW_TEXT, sid)
  elseif from and from > shard.NOW + MINUTE and (r.due >= from or is_before) then
    local due = shard.NOW + math.max(r.due - from, 0)
    -- A run that failed counts no deadline anew: that of a task that was there before stays.
    local counted = not BY_POLICY[letter] or r.created > shard.NOW + MINUTE
    if counted and r.deadline > 0 and r.flags % (2 * fields.COUNTS) >= fields.COUNTS then
      r.deadline = r.deadline - r.due + due
    end
    r.due = due
    call('HSET', shard.TASKS, sid, record.close(r))
    call('ZADD', shard.DUE[tenant], record.due_score(sid, due), sid)
  else
    return
  end
  misplaced.touch(tenant)
end

-- A lease that ends later than it may. No lease is longer than a day, so one that was given in time and ends later than
-- that was extended by the wrong clock.
local function mend_lease(sid, r)
  local ends, left = tonumber(call('ZSCORE', shard.LEASED, sid) or nil), nil
  if ends and r.claimed > shard.NOW + MINUTE and ends >= r.claimed then
    left = ends - r.claimed
  elseif ends and ends > shard.NOW + DAY then
    left = math.max(ends - was_at, MINUTE)
  end
  if left then
    call('ZADD', shard.LEASED, values.text_of(shard.NOW + math.min(left, DAY)), sid)
  end
end

-- What ended by the wrong clock ended by now: so it is forgotten in time.
local function mend_end(sid, place)
  local ended = tonumber(call('ZSCORE', place, sid) or nil)
  if ended and ended > shard.NOW + MINUTE then
    call('ZADD', place, shard.NOW_TEXT, sid)
  end
end

-- Looks at the times of a record as it stands. Answers whether it is to be looked at again.
function put_back.mend(sid, data)
  local r, tenant = record.open(data), tenants.tenant_of(sid)
  if r and r.status == fields.LEASE then
    mend_lease(sid, r)
  elseif not r or r.status == fields.SCHEDULED then
    local due = misplaced.due_set(tenant)
    if not due then
      return true
    end
    local score = tonumber(call('ZSCORE', due, sid) or nil)
    local waits = score == fields.NEVER and byte(sid) ~= record.SCHEDULE
    if score and score > shard.NOW + MINUTE and not waits then
      mend_due(sid, tenant, r)
    end
  else
    mend_end(sid, r.status == fields.DIED and shard.DEAD or shard.DONE)
  end
  return false
end
