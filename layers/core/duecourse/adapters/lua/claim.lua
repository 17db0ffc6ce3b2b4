-- Leases due tasks: tenants with ripe work take turns, each a quantum. Lapsed leases are taken back first.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's and ending's, then: limit (tasks), lease ms where the queue has none of its own, max bytes of records
--         after the first, bytes of those that this claim has leased before, nonce (8 bytes), door (its letter in a record)
-- RETURNS {now, bell_at, died, backlog, {tenant whose due set was not among KEYS...}, {stored id, record, ...}, lease ms,
--         priority (-1 for none), 1 where due tasks wait for the end of leases, {tenant whose turn is next...} or {}}; the
--         record is "" of a task that is put off, for it cannot be read
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

--include prelude fresh record history lease ending handout

local lease_ms, max_bytes = LEASE_OF_QUEUE or tonumber(ARGV[FIRST + 1]), tonumber(ARGV[FIRST + 2])
local LEASE_END, ENDS_AT = lease_end(ARGV[FIRST + 4], ARGV[FIRST + 5]), text_of(NOW + lease_ms)
-- Bounds of one claim: due tasks that it does not lease, heads that join the ring at a time, tenants of the ring's front
-- that it looks at, those of them whose backlog it counts, and a backlog of which nobody must know how much more it is.
local BURY, NOTICE, LOOK, COUNTED, PLENTY = 1000, 100, 128, 16, 1000
local TURNS = 20 -- how many tenants share a claim at the least, where so many have work: each more costs it time
-- Redis looks through all of a small hash or zset for each member; one of over 64 bytes makes an index of it, which it
-- stays until it is empty.
local FEW, SEVERAL, LONG = 64, 8, string.rep('-', 65)
local useless = 0 -- how many were due and are not leased

local want, bytes, taken = {}, tonumber(ARGV[FIRST + 3]), 0
-- {stored id, record...}, {stored id...}, {end, stored id...}, due time -> how many
local handed, unread, leased, late = {}, {}, {}, {}
local _, died = reclaim(RECLAIM, want)
local limit = #want == 0 and room(tonumber(ARGV[FIRST])) or 0 -- else it is asked again, and takes back the rest first

-- Tenants whose head has come due join the ring's end.
local function notice()
  local ripe = call('ZRANGEBYSCORE', HEADS, '-inf', NOW_TEXT, 'LIMIT', '0', NOTICE)
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
  remember(r, 69, 'past its deadline')
  local told = tell_of(sid, r)
  r.fence, r.claimed = fence, claimed
  follow(told)
  call('ZADD', DEAD, NOW, sid)
  call('HSET', TASKS, sid, close(r))
  died = died + 1
end

-- One turn of each tenant in the ring's front, and the stored ids that they have in it, those of `first` to `last` each.
-- A tenant that runs all it may is barred.
local function gather()
  local turns, sids, free = {}, {}, limit - taken
  local front = call('ZRANGE', RING, '0', LOOK - 1)
  local quantum = math.ceil(free / math.max(1, math.min(#front, TURNS)))
  for _, tenant in ipairs(front) do
    if not DUE[tenant] then
      want[#want + 1] = tenant
    elseif #sids == free then
      break
    else
      local few = math.min(quantum, free - #sids, tenant_room(tenant))
      local first, more = #sids + 1, false
      if few > 0 then
        local due = call('ZRANGEBYSCORE', DUE[tenant], '-inf', NOW_TEXT, 'LIMIT', '0', text_of(few + 1))
        more = #due > few
        for i = 1, math.min(few, #due) do
          sids[first + i - 1] = due[i]
        end
      end
      turns[#turns + 1] = {
        tenant = tenant, first = first, last = #sids, seen = first - 1, begun = 0, barred = few <= 0, more = more,
      }
    end
  end
  return turns, sids
end

-- Looks at what was gathered, in pieces. What it chooses it hands out as it stands. Answers the run of each, {stored id,
-- opened record...} of what is past its deadline, {stored id...} of what cannot be read, and whether the bytes are used up
-- before the end. A record that is cut off it does not see, for all would pay for that: whoever gets such a lease finds
-- it, and it lapses.
local function choose(turns, sids)
  local runs, gone, broken, records, base, read_to = {}, {}, {}, nil, 0, 0
  local now, count, n, used = NOW, 0, #handed, bytes
  for _, turn in ipairs(turns) do
    local before = count
    for i = turn.first, turn.last do
      if i > read_to then
        base, read_to = i - 1, math.min(i + PIECE - 1, #sids)
        records = call('HMGET', TASKS, unpack(sids, i, read_to))
      end
      local sid, data = sids[i], records[i - base]
      local size = data and #data or 0
      local version, _, run, due, deadline
      if size >= SMALLEST then
        -- To skip a byte costs as much as to read six.
        version, _, run, _, due, _, _, deadline = unpack_struct('>BI4I4I2I6I6I6I6', data)
      end
      if version == VERSION and (deadline == 0 or deadline > now) then
        if used > 0 and used + size > max_bytes then -- which ends the claim
          turn.begun, turn.seen = count - before, i - 1
          return runs, gone, broken, true
        end
        used, count, n = used + size, count + 1, n + 2
        runs[count], handed[n - 1], handed[n] = run, sid, data
        late[due] = (late[due] or 0) + 1
      elseif data then
        local r = version == VERSION and open(data)
        if r then
          push(gone, sid, r)
        else
          broken[#broken + 1] = sid
        end
      end
    end
    turn.begun, turn.seen = count - before, turn.last
  end
  bytes = used
  return runs, gone, broken, false
end

-- Leases what was chosen last, with these runs, behind the `n` that were handed out before.
local function lease(runs, n)
  local count = #runs
  local fence = count > 0 and next_fence(count) - count
  log_claimed(fence and fence + 1, count)
  for i = 1, count do
    n = n + 2
    handed[n] = handed[n] .. pack(LEASE_FRONT, runs[i] + 1, fence + i) .. LEASE_END
    leased[n - 1], leased[n] = ENDS_AT, handed[n - 1]
  end
  taken = taken + count
end

-- Where tenants stand after their turn: with more due at the ring's end, barred from more parked, else by what comes.
local function move_on(turns)
  local leaving, ring, heads, parked, last = {}, {}, {}, {}, nil
  for _, turn in ipairs(turns) do
    if turn.seen >= turn.first or turn.last < turn.first then
      local tenant, at = turn.tenant, NOW
      if turn.barred or not (turn.more or turn.seen < turn.last) then -- else more is due
        at = tonumber(call('ZRANGE', DUE[tenant], '0', '0', 'WITHSCORES')[2])
      end
      if at and at <= NOW and not turn.barred then
        last = (last or last_turn()) + 1
        push(ring, text_of(last), tenant)
      else
        leaving[#leaving + 1] = tenant
        if at then
          push(at > NOW and heads or parked, at, tenant)
        end
      end
    end
  end
  in_pieces('ZREM', RING, leaving)
  in_pieces('ZADD', RING, ring)
  in_pieces('ZADD', HEADS, heads)
  in_pieces('ZADD', PARKED, parked)
end

-- Answers whether another round may have more.
local function take_turns()
  notice()
  local turns, sids = gather()
  local before, begun = #handed, {}
  local runs, gone, broken, cut = choose(turns, sids)
  for _, turn in ipairs(turns) do
    if turn.seen >= turn.first then
      call('ZREM', DUE[turn.tenant], unpack(sids, turn.first, turn.seen))
      useless = useless + turn.seen - turn.first + 1 - turn.begun
    end
    begun[turn.tenant] = turn.begun > 0 and turn.begun or nil
  end
  if #turns > SEVERAL then
    call('HSET', META, LONG, '')
    call('HDEL', META, LONG)
    call('ZADD', RING, 0, LONG)
    call('ZREM', RING, LONG)
  end
  if next(begun) then
    begun = count_all_running(begun)
  end
  for _, turn in ipairs(turns) do
    turn.barred = turn.barred or (begun[turn.tenant] or 0) >= (TENANT_MAX or math.huge)
  end
  for _, sid in ipairs(broken) do
    call('ZADD', DUE[tenant_of(sid)], NOW + PUT_OFF, sid)
    unread[#unread + 1] = sid
  end
  for i = 1, #gone, 2 do
    bury(gone[i], gone[i + 1])
  end
  lease(runs, before)
  move_on(turns)
  return #turns > 0 and not cut and #want == 0
end

-- How many are left that could be claimed; of tenants far back in the ring, and behind plenty, each counts as one. And
-- whose turn is next, where there are others than those among KEYS.
local function backlog()
  local left = call('ZCOUNT', HEADS, '-inf', NOW_TEXT) + call('ZCARD', RING)
  local front, others = call('ZRANGE', RING, '0', LOOK - 1), false
  for i, tenant in ipairs(front) do
    local due = DUE[tenant]
    others = others or not due
    if due and i <= COUNTED and left < PLENTY then
      left = left + call('ZCOUNT', due, '-inf', NOW_TEXT) - 1
    end
  end
  return left, others and front or {}
end

while taken < limit and useless < BURY and take_turns() do end
in_pieces('HSET', TASKS, handed)
if #leased > FEW then
  call('ZADD', LEASED, 0, LONG)
  in_pieces('ZADD', LEASED, leased)
  call('ZREM', LEASED, LONG)
else
  in_pieces('ZADD', LEASED, leased)
end
log_lateness(late)

WAS_FULL, woken = false, false -- who claims and leaves something due comes again
local at, left, front, held = hang(followed), 0, {}, full() or (TENANT_MAX and call('ZCARD', PARKED) > 0)
if not (PAUSED or full() or opens_at() > NOW) then
  left, front = backlog()
end
for _, sid in ipairs(unread) do
  push(handed, sid, '')
end
return { NOW, at, died, left, want, handed, lease_ms, PRIORITY, held and 1 or 0, front }
