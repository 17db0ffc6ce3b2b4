-- Whose turn it is, for a claim: tenants with ripe work stand in the ring, and each turn is a quantum.

-- Bounds of one claim: heads that join the ring at a time, tenants of the ring's front that it looks at, those of them
-- whose backlog it counts, and a backlog of which nobody must know how much more it is.
local NOTICE, LOOK, COUNTED, PLENTY = 100, 128, 16, 1000
local TURNS = 20 -- how many tenants share a claim at the least, where so many have work: each more costs it time
-- Redis looks through all of a small hash or zset for each member; one of over 64 bytes makes an index of it, which it
-- stays until it is empty.
local SEVERAL, LONG = 8, string.rep('-', 65)

-- Tenants whose head has come due join the ring's end.
function rounds.notice()
  local ripe = call('ZRANGEBYSCORE', shard.HEADS, '-inf', shard.NOW_TEXT, 'LIMIT', '0', NOTICE)
  if #ripe == 0 then
    return
  end
  call('ZREM', shard.HEADS, unpack(ripe))
  local turn, members = tenants.last_turn(), {}
  for i, tenant in ipairs(ripe) do
    values.push(members, turn + i, tenant)
  end
  call('ZADD', shard.RING, unpack(members))
end

-- One turn of each tenant in the ring's front, and the stored ids that they have in it, `free` at most, those of
-- `first` to `last` each. A tenant that runs all it may is barred; one whose due set is not among KEYS is added to
-- `want`; of what it has, the first `skipped` are passed over.
function rounds.gather(free, want, skipped)
  local turns, sids = {}, {}
  local front = call('ZRANGE', shard.RING, '0', LOOK - 1)
  local quantum = math.ceil(free / math.max(1, math.min(#front, TURNS)))
  for _, tenant in ipairs(front) do
    if not shard.DUE[tenant] then
      want[#want + 1] = tenant
    elseif #sids == free then
      break
    else
      local few = math.min(quantum, free - #sids, handout.tenant_room(tenant))
      local first, more = #sids + 1, false
      if few > 0 then
        local due = call('ZRANGEBYSCORE', shard.DUE[tenant], '-inf', shard.NOW_TEXT, 'LIMIT',
          values.text_of(skipped[tenant] or 0), values.text_of(few + 1))
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

-- What was looked at is due no more. Answers how much of it is not leased.
function rounds.leave_due(turns, sids)
  local useless = 0
  for _, turn in ipairs(turns) do
    if turn.seen >= turn.first then
      call('ZREM', shard.DUE[turn.tenant], unpack(sids, turn.first, turn.seen))
      useless = useless + turn.seen - turn.first + 1 - turn.begun
    end
  end
  return useless
end

-- Counts what the turns began, and bars the tenants that now run all they may.
function rounds.bar(turns)
  local begun = {}
  for _, turn in ipairs(turns) do
    begun[turn.tenant] = turn.begun > 0 and turn.begun or nil
  end
  if #turns > SEVERAL then
    call('HSET', shard.META, LONG, '')
    call('HDEL', shard.META, LONG)
    call('ZADD', shard.RING, 0, LONG)
    call('ZREM', shard.RING, LONG)
  end
  if next(begun) then
    begun = leases.count_all_running(begun)
  end
  for _, turn in ipairs(turns) do
    turn.barred = turn.barred or (begun[turn.tenant] or 0) >= (shard.TENANT_MAX or math.huge)
  end
end

-- Where tenants stand after their turn: with more due at the ring's end, barred from more parked, else by what comes.
-- Answers whether any left the ring.
function rounds.move_on(turns)
  local leaving, ring, heads, parked, last = {}, {}, {}, {}, nil
  for _, turn in ipairs(turns) do
    if turn.seen >= turn.first or turn.last < turn.first then
      local tenant, at = turn.tenant, shard.NOW
      if turn.barred or not (turn.more or turn.seen < turn.last) then -- else more is due
        at = tonumber(call('ZRANGE', shard.DUE[tenant], '0', '0', 'WITHSCORES')[2])
      end
      if at and at <= shard.NOW and not turn.barred then
        local whose
        if not last then
          last, whose = tenants.last_turn()
        end
        if whose ~= tenant then -- else it is at the end already, most often alone there
          last = last + 1
          values.push(ring, values.text_of(last), tenant)
        end
      else
        leaving[#leaving + 1] = tenant
        if at then
          values.push(at > shard.NOW and heads or parked, at, tenant)
        end
      end
    end
  end
  values.in_pieces('ZREM', shard.RING, leaving)
  values.in_pieces('ZADD', shard.RING, ring)
  values.in_pieces('ZADD', shard.HEADS, heads)
  values.in_pieces('ZADD', shard.PARKED, parked)
  return #leaving > 0
end

-- How many are left that could be claimed; of tenants far back in the ring, and behind plenty, each counts as one. And
-- whose turn is next, where there are others than those among KEYS.
function rounds.backlog()
  local left = call('ZCOUNT', shard.HEADS, '-inf', shard.NOW_TEXT) + call('ZCARD', shard.RING)
  local front, others = call('ZRANGE', shard.RING, '0', LOOK - 1), false
  for i, tenant in ipairs(front) do
    local due = shard.DUE[tenant]
    others = others or not due
    if due and i <= COUNTED and left < PLENTY then
      left = left + call('ZCOUNT', due, '-inf', shard.NOW_TEXT) - 1
    end
  end
  return left, others and front or {}
end
