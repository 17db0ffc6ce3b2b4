-- The bell of a shard, and what throttles its tasks: they say when it goes.

local DEADMAN = 1000
local LOOK_AHEAD = 32 -- entries of the log
local SCHEDULES = '*' -- the tenant of schedules
local MINUTE, HOUR, PER_MS = 60000, 3600000, 64 -- fences a millisecond, as modules/fences.lua: they follow the clock

local was_full

-- Whether the shard runs as many tasks as it may.
function bell.full()
  return shard.MAX_RUNNING and call('ZCARD', shard.LEASED) >= shard.MAX_RUNNING
end

function bell.begin()
  was_full = bell.full()
end

-- When the rate next lets a task be claimed, 0 where it does.
function bell.opens_at()
  if not shard.RATE or shard.LOGGED < shard.RATE then
    return 0
  end
  local excess, at = shard.LOGGED - shard.RATE + 1, 0
  local entries = call('ZRANGE', shard.LOG, 0, LOOK_AHEAD - 1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    at, excess = entries[i + 1] + shard.PER, excess - match(entries[i], '%d+$')
    if excess <= 0 then
      break
    end
  end
  return at
end

-- Whether tasks that wait are claimed by nobody for now.
function bell.is_throttled()
  return shard.PAUSED or bell.full() or bell.opens_at() > shard.NOW
end

-- The earliest instant at which a claim could change something, nil for never. Of a queue that is paused those are its
-- leases, of one that is full its schedules too: no limit delays those, for they lease nothing.
function bell.earliest()
  local at = tonumber(call('ZRANGE', shard.LEASED, '0', '0', 'WITHSCORES')[2])
  if shard.PAUSED then
    return at
  end
  local opens, head = bell.full() and math.huge or bell.opens_at(), nil
  if opens < math.huge then
    local front = call('ZRANGE', shard.RING, '0', '0')[1]
    -- After a step of the clock what was ripe may not be.
    if front and shard.DUE[front] and not tenants.rehead(front) then
      front = call('ZRANGE', shard.RING, '0', '0')[1]
    end
    head = (front or shard.WAKE) and shard.NOW or tonumber(call('ZRANGE', shard.HEADS, '0', '0', 'WITHSCORES')[2])
    head = head and math.max(head, opens, 1) -- 0 would be none
  end
  if opens > shard.NOW then
    local fires = tonumber(call('ZSCORE', shard.HEADS, SCHEDULES) or nil)
    head = head and fires and math.min(head, fires) or head or fires
  end
  return at and head and math.min(at, head) or at or head
end

function bell.hung()
  if shard.TRAVEL then
    return tonumber(call('HGET', shard.META, 'bell_at') or nil)
  end
  -- Time moves inside a script and expiry does not: a bell that is still here has yet to ring, though its time is past.
  local at = tonumber(call('GET', shard.BELL) or nil) -- another program may have written there
  return at and math.max(at, shard.NOW)
end

-- It begins with a ZREM, which runs where memory is short, and so does then what follows it.
-- Next: the bridge hears the key expire, or reads it a millisecond later: ringing/listener.py, ringing/timer.py.
local function set_bell(at)
  local text = values.text_of(at)
  call('ZREM', shard.LEASED, '')
  if shard.TRAVEL then
    call('HSET', shard.META, 'bell_at', text)
  elseif at > 0 then
    call('SET', shard.BELL, text, 'PXAT', text)
  else
    call('DEL', shard.BELL)
  end
  call('PUBLISH', shard.HEAD_CHANNEL, text)
end

-- When the bell is to go where that is due already. What was due was rung for, so the bell goes in a second, in case
-- that ring came to nothing. What this script made due is rung for at once. That is never before now + 1: a key that is
-- set into the past vanishes without an event.
local function ring_again(was, made_due)
  if made_due then
    return shard.NOW + 1
  elseif was >= shard.NOW and was <= shard.NOW + DEADMAN then
    return was
  end
  return shard.NOW + DEADMAN
end

-- Ends every script: the bell hangs at the earliest instant, which it answers. `made_due` says whether the script made
-- anything due; a place that a due task waited for, and that is free again, makes it due too. `was` is where the bell
-- hung, if the caller knows.
function bell.hang(made_due, was)
  local by = shard.NOW - shard.FENCE / PER_MS
  if by < -MINUTE or (by > HOUR and shard.FENCE > 0) then
    clock_ahead.note(by)
  end
  places.give_places()
  local at = bell.earliest() or 0
  was = was or bell.hung() or 0
  if at > 0 and at <= shard.NOW then
    at = ring_again(was, made_due or shard.notified or shard.woken or (was_full and not bell.full()))
  end
  if at ~= was then
    set_bell(at)
  end
  return at
end

-- Ends a claim: who claims and leaves something due comes again.
function bell.hang_after_claim()
  was_full, shard.woken = false, false
  return bell.hang(false)
end
