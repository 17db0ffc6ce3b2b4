-- What the scripts that end leases share: the record's tail and history, attempts, lapsed leases.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's
-- RETURNS nothing

local HISTORY = 10 -- how many runs a record remembers
local PIECE, BYTES = 32, 4000000 -- records are read so many at a time, and upkeep stops after so many bytes

-- The record's tail. -------------------------------------------------------------------------------------------------

-- The rest up to its tail, then the tail's state, result and history.
local function split(rest)
  local body_end = 25 + unpack_struct('>I4', rest, 22)
  if #rest == body_end then
    return rest, '', '', ''
  end
  local state_end = body_end + 2 + unpack_struct('>I2', rest, body_end + 1)
  local result_end = state_end + 4 + unpack_struct('>I4', rest, state_end + 1)
  return string.sub(rest, 1, body_end), string.sub(rest, body_end + 3, state_end),
    string.sub(rest, state_end + 5, result_end), string.sub(rest, result_end + 1)
end

local function join(body, state, result, history)
  return body .. (state == '' and '\0\0' or pack('>I2', #state)) .. state
    .. (result == '' and '\0\0\0\0' or pack('>I4', #result)) .. result .. history
end

-- Ends a run in the record's history; nil leaves the state or the result as it is.
local function remember(r, outcome, detail, state, result)
  local body, old_state, old_result, history = split(r.rest)
  if r.count == HISTORY then
    history = string.sub(history, 26 + unpack_struct('>I2', history, 24))
  else
    r.count = r.count + 1
  end
  history = history .. pack('>BI4I6I6I6I2', outcome, r.run, r.fence, r.claimed, NOW, #detail) .. detail
  r.rest = join(body, state or old_state, result or old_result, history)
end

-- Which ending the run under this fence had, by the record's history.
local function remembered(r, fence)
  local _, _, _, history = split(r.rest)
  local at = 1
  while at < #history do
    local outcome, _, entry_fence, _, _, length = unpack_struct('>BI4I6I6I6I2', history, at)
    if entry_fence == fence then
      return outcome
    end
    at = at + 25 + length
  end
end

local function set_state(r, state)
  local body, _, result, history = split(r.rest)
  r.rest = join(body, state, result, history)
end

-- The end of a lease. ------------------------------------------------------------------------------------------------

local function spent(r)
  return r.attempt >= unpack_struct('>I2', r.rest, 10)
end

local function expired(r)
  return r.deadline > 0 and r.deadline <= NOW
end

-- A tenant that waited for a place of its own may be claimed from again.
local function wake(tenant)
  local at = call('ZSCORE', PARKED, tenant)
  if at then
    call('ZREM', PARKED, tenant)
    call('ZADD', HEADS, at, tenant)
    woken = true
  end
end

-- How many of a tenant's tasks are leased, which is written down while any is. Answers it.
local function count_running(tenant, change)
  local running = call('HINCRBY', META, 'running:' .. tenant, change)
  if running <= 0 then
    call('HDEL', META, 'running:' .. tenant)
  end
  if TENANT_MAX and change < 0 and running < TENANT_MAX then
    wake(tenant)
  end
  return running
end

-- The same for many tenants at once: tenant -> change. Answers tenant -> how many.
local function count_all_running(changes)
  local tenants, fields, set, gone, running = {}, {}, {}, {}, {}
  for tenant in pairs(changes) do
    tenants[#tenants + 1], fields[#fields + 1] = tenant, 'running:' .. tenant
  end
  for i, count in ipairs(call('HMGET', META, unpack(fields))) do
    local tenant = tenants[i]
    count = (count or 0) + changes[tenant]
    if count > 0 then
      push(set, fields[i], count)
    else
      gone[#gone + 1] = fields[i]
    end
    if TENANT_MAX and changes[tenant] < 0 and count < TENANT_MAX then
      wake(tenant)
    end
    running[tenant] = count
  end
  in_pieces('HDEL', META, gone)
  in_pieces('HSET', META, set)
  return running
end

-- Spends an attempt: the record is scheduled at `due`, or dead. Answers whether it lives.
local function retry_or_die(r, due)
  if spent(r) or expired(r) then
    r.status = DIED
    return false
  end
  r.status, r.attempt, r.due = SCHEDULED, r.attempt + 1, due
  return true
end

-- Takes back at most `limit` lapsed leases. Answers how many, how many of them died, and whether it stopped at a bound;
-- tenants that it could not serve it adds to `want`. It begins with ZREM, which runs where memory is short.
local function reclaim(limit, want)
  local lapsed = call('ZRANGEBYSCORE', LEASED, '-inf', NOW, 'LIMIT', 0, limit)
  local reclaimed, died, bytes = 0, 0, 0

  local function take_back(sid, tenant, r)
    r.last = 0
    local successor = has_successor(r) and succeed(sid, r)
    if successor then
      r = successor
    else
      remember(r, 76, 'the lease lapsed')
      if not retry_or_die(r, r.due) then
        died = died + 1
        call('ZADD', DEAD, NOW, sid)
      end
    end
    if r.status == SCHEDULED then
      call('ZADD', DUE[tenant], r.due, sid)
    end
    call('HSET', TASKS, sid, close(r))
    rehead(tenant)
  end

  for _, sid in ipairs(lapsed) do
    local tenant = tenant_of(sid)
    if bytes >= BYTES then
      return reclaimed, died, true
    elseif not DUE[tenant] then
      want[#want + 1] = tenant
    else
      call('ZREM', LEASED, sid)
      local data = call('HGET', TASKS, sid)
      local r = open(data)
      if data and not r then
        call('ZADD', LEASED, NOW + PUT_OFF, sid)
      else
        count_running(tenant, -1)
      end
      if r then
        take_back(sid, tenant, r)
        bytes = bytes + #data
      end
      reclaimed = reclaimed + 1
    end
  end
  return reclaimed, died, reclaimed == limit
end
