-- A clock that went ahead and was put back: what it left in the future is looked at by a pass of the sweep
-- (modules/versions.lua).
--
-- Fences follow the clock, so the newest tells how far it has been. `put_back` of meta is the newest fence as the last
-- sweep saw it, while that is ahead of the clock. `forgets` is "<when>:<from when on>": when a sweep last looked at what
-- ended long ago, and from when on it may be forgotten; it is there while anything has ended.
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

local touched, missing -- tenants whose due sets changed, and those whose due sets are not among KEYS

function clocks.begin()
  touched, missing = {}, {}
end

-- Begins a pass where the clock was put back since the last sweep. Answers whether it is behind the newest fence.
function clocks.watch()
  local was = tonumber(call('HGET', shard.META, 'put_back') or nil)
  local is_behind = shard.FENCE / PER_MS - shard.NOW > MINUTE
  if not is_behind and not was then
    return false
  end
  call('ZREM', shard.LEASED, '') -- this may be the script's first write, and memory short
  if not is_behind then
    call('HDEL', shard.META, 'put_back')
    return false
  end
  if not was or shard.FENCE - was > PER_MS * MINUTE then
    call('HSET', shard.META, 'rewrite', '0')
  end
  call('HSET', shard.META, 'put_back', string.format('%d', shard.FENCE))
  return true
end

-- Whether what ended long ago may be forgotten: not for some minutes after the clock has gone on by more than a day
-- between two sweeps, for it may be wrong.
function clocks.may_forget()
  local known, from = call('HGET', shard.META, 'forgets'), 0
  if call('ZCARD', shard.DONE) + call('ZCARD', shard.DEAD) == 0 then
    if known then
      call('HDEL', shard.META, 'forgets')
    end
    return true
  end
  local at, until_at = match(known or '', '^(%d+):(%d+)$')
  at, from = tonumber(at or shard.NOW), tonumber(until_at or 0)
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

-- What the due time of a scheduled task was counted from, its last end or its add; nil where it may have been given as an
-- instant, which what is due within the hour is taken not to be.
local function counted_from(r)
  local _, _, _, log = record.split(r.rest)
  local letter, at = newest(log)
  at = at or r.created
  return (BY_POLICY[letter] or r.due - at <= HOUR) and at or nil
end

-- A task or schedule that is due later than it may be, for the clock was ahead when that was written.
local function mend_due(sid, tenant, r)
  local from = r and byte(sid) ~= record.SCHEDULE and counted_from(r)
  if not r or byte(sid) == record.SCHEDULE or r.due <= shard.NOW then -- its caller computes its next time again
    call('ZADD', shard.DUE[tenant], shard.NOW_TEXT, sid)
  elseif from and from > shard.NOW + MINUTE and r.due >= from then
    local due = shard.NOW + r.due - from
    if r.deadline > 0 and r.flags % (2 * fields.COUNTS) >= fields.COUNTS then
      r.deadline = r.deadline - r.due + due
    end
    r.due = due
    call('HSET', shard.TASKS, sid, record.close(r))
    call('ZADD', shard.DUE[tenant], record.due_score(sid, due), sid)
  else
    return
  end
  touched[tenant] = true
end

-- Looks at the times of a record as it stands. Answers whether it is to be looked at again.
function clocks.mend(sid, data)
  local r, tenant = record.open(data), tenants.tenant_of(sid)
  if r and r.status == fields.LEASE then
    local ends = tonumber(call('ZSCORE', shard.LEASED, sid) or nil)
    if ends and r.claimed > shard.NOW + MINUTE and ends >= r.claimed then
      call('ZADD', shard.LEASED, values.text_of(shard.NOW + ends - r.claimed), sid)
    end
  elseif not r or r.status == fields.SCHEDULED then
    local due = shard.DUE[tenant]
    if not due then
      missing[tenant] = true
      return true
    end
    local score = tonumber(call('ZSCORE', due, sid) or nil)
    local waits = score == fields.NEVER and byte(sid) ~= record.SCHEDULE
    if score and score > shard.NOW + MINUTE and not waits then
      mend_due(sid, tenant, r)
    end
  end
  return false
end

-- Puts the tenants in their places whose due sets changed; adds those whose due sets are wanted.
function clocks.finish(want)
  for tenant in pairs(touched) do
    tenants.rehead(tenant)
  end
  for tenant in pairs(missing) do
    want[#want + 1] = tenant
  end
end
