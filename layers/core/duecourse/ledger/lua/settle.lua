-- Ends leases, each under its token and with an ending; the same token and ending again is answered as before.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard and notifications, then the heads of all leases in one, 31 bytes each: token 14, ending 1 (D
--         done, A again, R retry, X drop, B release, V undelivered), 1 where due counts from now, due 6, 1 where it has
--         details, how late its handler began 4 (ms, 4294967295 where that does not count), how long after the claim 4
--         (ms); the stored id of each; the details of those that have any: state length 2 (65535 as it is), state,
--         detail length 2, detail, result
-- RETURNS {now, bell_at, {reply...}}; a reply is 1 done, 2 again, 3 retried, 4 dead, 5 released, 0 stale; there are
--         fewer than leases where its bytes ran out before the last
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local SIZE, HEAD = 31, '>c14BBI6BI4I4'
local UNCOUNTED = 4294967295 -- lateness of a lease that is counted elsewhere, or began nothing
local KEPT = 65535 -- the length of a state that stays as it is
local HEADS_OF_ALL = ARGV[shard.FIRST]
local count = #HEADS_OF_ALL / SIZE
local AGAIN_, RETRY_, DROP_ = fields.RAN_AGAIN, fields.RAN_RETRY, fields.RAN_DROP
local REPLIES = {
  [fields.RAN_DONE] = 1, [AGAIN_] = 2, [RETRY_] = 3, [DROP_] = 4, [fields.RAN_RELEASE] = 5,
  [fields.RAN_UNDELIVERED] = 5,
}
local STALE, DONE_, DEAD_ = 0, 1, 4
local RUNS = { [fields.RAN_DONE] = true, [AGAIN_] = true, [RETRY_] = true, [DROP_] = true } -- what ends a run
local DIED_OF_IT = 32 -- makes an ending's letter in `last` a small one

local replies, ended, to_notify, grown = {}, {}, {}, {}
local written, finished, died, scheduled, running, begun = {}, {}, {}, {}, {}, {}
local made_due = false

-- What comes with an ending: a new state or nil, a detail, a result.
local function details(text)
  if text == '' then
    return nil, '', ''
  end
  local length, state, at = unpack_struct('>I2', text), nil, 3
  if length ~= KEPT then
    state, at = sub(text, 3, 2 + length), 3 + length
  end
  length = unpack_struct('>I2', text, at)
  return state, sub(text, at + 2, at + 1 + length), sub(text, at + 2 + length)
end

-- Notes that a counted record has a result now; that is written down after the script's first write.
local function grow(sid, size)
  local tenant = tenants.tenant_of(sid)
  grown[tenant] = (grown[tenant] or 0) + size
end

-- What an ending does to the record; answers the reply.
local ENDINGS = {
  [fields.RAN_DONE] = function(r, _, _, _, result)
    record.remember(r, fields.RAN_DONE, '', nil, result)
    r.status = fields.FINISHED
    return 1
  end,
  [AGAIN_] = function(r, due, state)
    if leases.expired(r) then
      record.remember(r, AGAIN_, '', state)
      record.remember_expired(r)
      r.status = fields.DIED
      return DEAD_
    end
    record.remember(r, AGAIN_, '', state)
    r.status, r.attempt, r.due = fields.SCHEDULED, 1, due
    return 2
  end,
  [RETRY_] = function(r, due, state, detail)
    record.remember(r, RETRY_, detail, state)
    return leases.retry_or_die(r, due) and 3 or DEAD_
  end,
  [DROP_] = function(r, _, _, detail)
    record.remember(r, DROP_, detail)
    r.status = fields.DIED
    return DEAD_
  end,
  [fields.RAN_UNDELIVERED] = function(r, _, _, detail)
    require 'lapses'
    call('ZREM', shard.LEASED, '') -- what follows writes
    busy.throttled(r)
    return lapses.undelivered(r, false, detail) and 5 or DEAD_
  end,
  [fields.RAN_RELEASE] = function(r, due, _, detail)
    record.remember(r, fields.RAN_RELEASE, detail)
    if r.target then
      leases.end_delivery(r)
    end
    r.status, r.due = fields.SCHEDULED, due
    return 5
  end,
}

local function settled_before(r, token, ending)
  if leases.is_leased(r, token) then
    return STALE
  elseif leases.token_of(r) == token then
    return r.last == ending and REPLIES[ending] or r.last == ending + DIED_OF_IT and DEAD_ or STALE
  end
  return history.remembered(r, unpack_struct('>I6', token)) == ending and REPLIES[ending] or STALE
end

local function place(sid, r)
  local tenant = tenants.tenant_of(sid)
  if r.status == fields.FINISHED then
    values.push(finished, shard.NOW_TEXT, sid)
  elseif r.status == fields.DIED then
    values.push(died, shard.NOW_TEXT, sid)
  else
    scheduled[tenant] = scheduled[tenant] or {}
    values.push(scheduled[tenant], record.due_score(sid, r.due), sid)
    made_due = made_due or r.due <= shard.NOW
  end
  if r.status ~= fields.SCHEDULED then
    record.note_occurrence(sid, r.flags, r.status)
  end
  running[tenant] = (running[tenant] or 0) - 1
  values.push(written, sid, record.close(r))
end

-- Whether this ending may end the lease that stands there under this token.
local function may_end(r, token, ending)
  return leases.is_leased(r, token) and (ending ~= fields.RAN_UNDELIVERED or r.target)
end

-- Ends a lease. Answers the reply, and when its handler began, if a run has ended by it now.
local function settle(sid, r, token, ending, due, text, late, after)
  if not may_end(r, token, ending) then
    return settled_before(r, token, ending)
  end
  if r.target then
    places.free_place(sid, r.target)
  end
  if late ~= UNCOUNTED then
    r.claimed, begun[late] = r.claimed + after, (begun[late] or 0) + 1
  end
  local began_at = RUNS[ending] and not r.target and r.claimed or nil
  local state, detail, result = details(text)
  local reply = ENDINGS[ending](r, due, state, detail, result)
  if reply == DONE_ and r.flags % tenant_bytes.TWICE > 0 then
    grow(sid, #result)
  end
  r.last = reply == DEAD_ and ending + DIED_OF_IT or ending
  ended[#ended + 1] = { sid, r }
  if r.status ~= fields.SCHEDULED then
    for _, one in ipairs(notifications.of(sid, r)) do
      to_notify[#to_notify + 1] = one
    end
  end
  return reply, began_at
end

-- The record with its end behind it, where a lease stands there and nobody is notified of it. Most ends are such, and a
-- table of the fields costs as much again. Answers when the handler began and the size of its result too. Nil for any
-- other, and where a successor waits or a schedule is to note it; one that broke while it was leased is not seen, as in
-- a claim.
local ENDED_NOW = pack('>I6', shard.NOW) .. 'D'
local NO_RESULT = '\0\0\0\0' .. ENDED_NOW

-- The record of a lease whose handler began at an instant after its claim.
local CLAIMED_FROM, TRIGGER_FROM = fields.TOKEN_TO + 1, -2
local function begun_at(data, instant)
  return sub(data, 1, CLAIMED_FROM - 1) .. pack('>I6', instant) .. sub(data, TRIGGER_FROM)
end

local function done_at_once(data, token, text, after)
  local letter = byte(data, -1)
  local has_lease = letter == fields.BEGUN or letter == fields.WORKED
  local version, flags = byte(data, 1, 2)
  if not has_lease or sub(data, fields.TOKEN_FROM, fields.TOKEN_TO) ~= token or version ~= fields.VERSION
    or flags % (2 * fields.SUCCESSOR) >= fields.SUCCESSOR
    or (flags >= fields.OCCURRENCE and flags % (2 * fields.OCCURRENCE) >= fields.OCCURRENCE)
    or sub(data, fields.NOTIFY_FROM, fields.NOTIFY_TO) ~= '\0\0' then
    return nil
  end
  local claimed = unpack_struct('>I6', data, #data + CLAIMED_FROM + 1) + after
  if after > 0 then
    data = begun_at(data, claimed)
  end
  if text == '' then
    return data .. NO_RESULT, claimed, 0
  end
  local _, _, result = details(text)
  return data .. result .. pack('>I4', #result) .. ENDED_NOW, claimed, #result
end

local found, base, read_to = nil, 0, 0
local opened, changed, gone, n, at, detailed = {}, {}, {}, 0, 1, shard.FIRST + count
local again, retried, run_times, waits, now = 0, 0, {}, {}, shard.NOW -- how many runs, in all and by bucket
local last_began_at, run_bucket, last_after, wait_bucket
for i = 1, count do
  if i > read_to then
    if shard.weight >= record.BYTES then
      break
    end
    base, read_to = i - 1, math.min(i - 1 + record.piece(i - 1), count)
    found = call('HMGET', shard.TASKS, unpack(ARGV, shard.FIRST + i, shard.FIRST + read_to))
  end
  local sid, text = ARGV[shard.FIRST + i], ''
  local token, ending, delayed, due, more, late, after, next_at = unpack_struct(HEAD, HEADS_OF_ALL, at)
  at = next_at
  if more == 1 then
    detailed = detailed + 1
    text = ARGV[detailed]
  end
  local data = changed[sid] or found[i - base] -- one may be there twice
  local done, began_at, size
  local begins = late ~= UNCOUNTED
  if ending == fields.RAN_DONE and data and not opened[sid] then
    done, began_at, size = done_at_once(data, token, text, after)
  end
  if done then
    local tenant = tenants.tenant_of(sid)
    n, shard.weight = n + 2, shard.weight + #data
    changed[sid], gone[n / 2], replies[i] = done, sid, 1
    finished[n - 1], finished[n] = shard.NOW_TEXT, sid
    written[n - 1], written[n] = sid, done
    running[tenant] = (running[tenant] or 0) - 1
    if begins then
      begun[late] = (begun[late] or 0) + 1
    end
    if size > 0 and byte(data, 2) % tenant_bytes.TWICE > 0 then
      grow(sid, size)
    end
  else
    local r = opened[sid] or record.open(data)
    opened[sid] = r
    replies[i], began_at = STALE, nil
    if r then
      due = delayed == 1 and shard.NOW + due or due
      replies[i], began_at = settle(sid, r, token, ending, due, text, late, after)
    end
    if replies[i] == STALE then
      leases.miss(token)
    elseif began_at then
      again, retried = again + (replies[i] == 2 and 1 or 0), retried + (replies[i] == 3 and 1 or 0)
    end
  end
  if began_at then
    if began_at ~= last_began_at then -- most often it is the same
      local _, power = math.frexp(began_at < now and now - began_at or 0)
      last_began_at, run_bucket = began_at, power
    end
    run_times[run_bucket] = (run_times[run_bucket] or 0) + 1
    if begins then
      if after ~= last_after then
        local _, power = math.frexp(after)
        last_after, wait_bucket = after, power
      end
      waits[wait_bucket] = (waits[wait_bucket] or 0) + 1
    end
  end
end

for _, pair in ipairs(ended) do
  gone[#gone + 1] = pair[1]
end
if #gone > 0 then
  call('ZREM', shard.LEASED, unpack(gone))
  local minute = pack('>I4', math.floor(shard.NOW / numbers.MINUTE))
  if sub(shard.NUMBERS, 1, 4) ~= minute then
    require 'lines'
    lines.close(minute)
  end
  for tenant, size in pairs(grown) do
    tenant_bytes.grow(tenant, size)
  end
  for _, pair in ipairs(ended) do
    local sid, r = pair[1], pair[2]
    place(sid, record.has_successor(r) and history.succeed(sid, r) or r)
  end
  values.in_pieces('HSET', shard.TASKS, written)
  if #finished > 0 then
    shard.entries = shard.entries .. pack(numbers.ENTRY, numbers.DONE, #finished / 2)
  end
  if again > 0 then
    shard.entries = shard.entries .. pack(numbers.ENTRY, numbers.AGAIN, again)
  end
  if retried > 0 then
    shard.entries = shard.entries .. pack(numbers.ENTRY, numbers.RETRIED, retried)
  end
  if #died > 0 then
    shard.entries = shard.entries .. pack(numbers.ENTRY, numbers.DEAD, #died / 2)
  end
  durations.count_late(begun)
  durations.add(numbers.RUN, run_times)
  durations.add(numbers.WAIT, waits)
  leases.count_running(running, 0)
  values.in_pieces('ZADD', shard.DONE, finished)
  values.in_pieces('ZADD', shard.DEAD, died)
  for tenant, members in pairs(scheduled) do
    values.in_pieces('ZADD', shard.DUE[tenant], members)
    tenants.rehead(tenant)
  end
  notifications.add(to_notify)
  numbers.write()
  if shard.AWAITED or shard.occurred then
    require 'announce'
    announce.ends(finished, died)
  end
end
return leases.answer({ shard.NOW, bell.hang(made_due), replies })
