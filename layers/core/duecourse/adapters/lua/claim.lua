-- Leases due tasks: tenants with ripe work take turns, each a quantum. Lapsed leases are taken back first.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's and ending's, then: limit (tasks), lease ms, max bytes of records after the first, nonce (8 bytes),
--         door (its letter in a record)
-- RETURNS {now, bell_at, died, backlog, {tenant whose due set was not among KEYS...}, {stored id, record, ...}}; the
--         record is "" of a task that is put off, for it cannot be read
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local limit, lease_ms, max_bytes = tonumber(ARGV[FIRST]), tonumber(ARGV[FIRST + 1]), tonumber(ARGV[FIRST + 2])
local nonce, door = ARGV[FIRST + 3], string.byte(ARGV[FIRST + 4])
local RECLAIM, BURY, NOTICE, LOOK = 500, 1000, 100, 64
local useless = 0 -- how many were due and are not leased

local want, answer, bytes, taken = {}, {}, 0, 0
local written, leased = {}, {}
local _, died = reclaim(RECLAIM, want)

-- Tenants whose head has come due join the ring's end.
local function notice()
  local ripe = call('ZRANGEBYSCORE', HEADS, '-inf', NOW, 'LIMIT', 0, NOTICE)
  if #ripe == 0 then
    return
  end
  call('ZREM', HEADS, unpack(ripe))
  local turn, members = last_turn(), {}
  for i, tenant in ipairs(ripe) do
    push(members, turn + i, tenant)
  end
  call('ZADD', RING, unpack(members))
end

-- It dies unclaimed: the history's entry has no lease, the record keeps its last one.
local function bury(sid, r)
  local fence, claimed = r.fence, r.claimed
  r.status, r.fence, r.claimed = DIED, 0, 0
  local told = NOBODY
  pcall(function() -- a broken record must not undo what was claimed before it
    remember(r, 69, 'past its deadline')
    told = tell_of(sid, r)
  end)
  r.fence, r.claimed = fence, claimed
  follow(told)
  call('ZADD', DEAD, NOW, sid)
  push(written, sid, close(r))
  died = died + 1
end

-- Splits what is due into tasks to lease, those past their deadline, and those that cannot be read; stops where the
-- bytes are used up.
local function choose(sids)
  local gone, chosen, broken, records, at = {}, {}, {}, {}, 0
  for i, sid in ipairs(sids) do
    if at == #records then
      records, at = call('HMGET', TASKS, unpack(sids, i, math.min(i + PIECE - 1, #sids))), 0
    end
    at = at + 1
    local data = records[at]
    local r = open(data)
    if r and not expired(r) then
      if taken + #chosen > 0 and bytes + #data > max_bytes then
        return gone, chosen, broken, true
      end
      bytes = bytes + #data
      chosen[#chosen + 1] = { sid, r }
    elseif r then
      gone[#gone + 1] = { sid, r }
    elseif data then
      broken[#broken + 1] = sid
    end
  end
  useless = useless + #sids - #chosen
  return gone, chosen, broken, false
end

local function lease(chosen)
  local fence = #chosen > 0 and next_fence(#chosen) - #chosen
  for i, pair in ipairs(chosen) do
    local sid, r = pair[1], pair[2]
    r.status, r.run, r.fence, r.nonce, r.claimed, r.door = LEASE, r.run + 1, fence + i, nonce, NOW, door
    local data = close(r)
    push(written, sid, data)
    push(leased, NOW + lease_ms, sid)
    push(answer, sid, data)
  end
  taken = taken + #chosen
end

-- One turn: at most `quantum` tasks of a tenant. Answers whether the bytes are used up.
local function serve(tenant, quantum)
  local sids = call('ZRANGEBYSCORE', DUE[tenant], '-inf', NOW, 'LIMIT', 0, quantum)
  if #sids == 0 then
    rehead(tenant)
    return false
  end
  local gone, chosen, broken, full = choose(sids)
  if not full then
    call('ZREM', DUE[tenant], unpack(sids))
  else
    for _, pair in ipairs(gone) do
      call('ZREM', DUE[tenant], pair[1])
    end
    for _, pair in ipairs(chosen) do
      call('ZREM', DUE[tenant], pair[1])
    end
  end
  if #chosen > 0 then
    count_running(tenant, #chosen)
  end
  for _, sid in ipairs(broken) do
    call('ZADD', DUE[tenant], NOW + PUT_OFF, sid)
    push(answer, sid, '')
  end
  for _, pair in ipairs(gone) do
    bury(pair[1], pair[2])
  end
  lease(chosen)
  rehead(tenant)
  if call('ZSCORE', RING, tenant) then
    call('ZADD', RING, last_turn() + 1, tenant)
  end
  return full
end

local function take_turns()
  local quantum = math.max(1, math.ceil(limit / math.max(1, call('ZCARD', RING))))
  local skipped = 0
  while taken < limit and useless < BURY and skipped < LOOK do
    local tenant = call('ZRANGE', RING, skipped, skipped)[1]
    if not tenant then
      return
    elseif not DUE[tenant] then
      want[#want + 1] = tenant
      skipped = skipped + 1
    elseif serve(tenant, math.min(quantum, limit - taken)) then
      return
    end
  end
end

local function backlog()
  local left = 0
  for _, tenant in ipairs(call('ZRANGE', RING, 0, LOOK - 1)) do
    left = left + (DUE[tenant] and call('ZCOUNT', DUE[tenant], '-inf', NOW) or 1)
  end
  return left
end

local left = 0
if not call('HGET', META, 'paused') then
  notice()
  take_turns()
  in_pieces('HSET', TASKS, written)
  in_pieces('ZADD', LEASED, leased)
  left = backlog()
end
return { NOW, hang(followed), died, left, want, answer }
