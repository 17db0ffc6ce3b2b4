-- Whose turn it is, for a claim: tenants with ripe work stand in the ring, and each turn is a quantum.

-- Bounds of one claim.
local NOTICE = 100 -- heads that join the ring at a time
local LOOK = 128 -- tenants of the ring's front that it looks at
local COUNTED = 16 -- those of them whose backlog it counts
local PLENTY = 1000 -- a backlog that is counted no further
local TURNS = 20 -- how many tenants share a claim at the least, where so many have work: each more costs it time
-- Redis looks through all of a small hash for each field; one of over 64 bytes makes an index of it, which it stays
-- until it is empty.
local SEVERAL = 8

local ripe, noticed -- tenants whose head has come due, in order; the same as a set, without those that had a turn

local SCHEDULES = '*' -- the tenant of schedules, which has no turns: `schedules_due` says whether its head has come due

function rounds.begin()
  rounds.schedules_due = false
end

-- The tenants whose turns are next: those in the ring's front, then those whose head has come due. These join the ring
-- only where they have more due after their turn, or get none (`move_on`). Most often what was due was all, and they
-- are among the heads again.
local function next_ones()
  local front = call('ZRANGE', shard.RING, '0', LOOK - 1)
  ripe, noticed = call('ZRANGEBYSCORE', shard.HEADS, '-inf', shard.NOW_TEXT, 'LIMIT', '0', NOTICE), {}
  for _, tenant in ipairs(ripe) do
    if tenant == SCHEDULES then
      rounds.schedules_due = true
    else
      noticed[tenant] = true
      if #front < LOOK then
        front[#front + 1] = tenant
      end
    end
  end
  return front
end

-- One turn of each tenant that is next, and the stored ids that they have in it, `free` at most, those of `first` to
-- `last` each. A tenant that runs all it may is barred; one whose due set is not among KEYS is added to `want`.
function rounds.gather(free, want)
  local turns, sids = {}, {}
  local front = next_ones()
  local quantum = math.ceil(free / math.max(1, math.min(#front, TURNS)))
  for _, tenant in ipairs(front) do
    if not shard.DUE[tenant] then
      want[#want + 1] = tenant
    elseif #sids == free then
      break
    else
      local few = math.min(quantum, free - #sids, limits.tenant_room(tenant))
      local first, more = #sids + 1, false
      if few > 0 then
        local due = call('ZRANGEBYSCORE', shard.DUE[tenant], '-inf', shard.NOW_TEXT, 'LIMIT', '0',
          values.text_of(few + 1))
        more = #due > few
        for i = 1, math.min(few, #due) do
          sids[first + i - 1] = due[i]
        end
      end
      turns[#turns + 1] = {
        tenant = tenant, first = first, last = #sids, more = more, barred = few <= 0,
        seen = first - 1, begun = 0, -- as far as it was looked at
      }
    end
  end
  return turns, sids
end

-- What was looked at is due no more, and what was begun of it is counted: tenants that now run all they may are barred.
-- Draws a fence for each that was begun. Answers how many were not begun, and how many fences were drawn before.
function rounds.leave_due(turns, sids)
  local begun, running, seen, count, fence = {}, {}, 0, 0, 0
  for _, turn in ipairs(turns) do
    if turn.seen >= turn.first then
      call('ZREM', shard.DUE[turn.tenant], unpack(sids, turn.first, turn.seen))
      seen, count = seen + turn.seen - turn.first + 1, count + turn.begun
      begun[turn.tenant] = turn.begun > 0 and turn.begun or nil
    end
  end
  if #turns > SEVERAL then
    call('HSET', shard.META, values.LONG, '')
    call('HDEL', shard.META, values.LONG)
  end
  if count > 0 then
    running, fence = leases.count_running(begun, count)
  end
  for _, turn in ipairs(turns) do
    turn.barred = turn.barred or (running[turn.tenant] or 0) >= (shard.TENANT_MAX or math.huge)
  end
  return seen - count, fence
end

-- These take their places at the ring's end, in their order.
local function join(ones)
  local turn, whose = tenants.last_turn()
  local members = {}
  for i, tenant in ipairs(ones) do
    if i > 1 or whose ~= tenant then -- else it is at the end already, most often alone there
      values.push(members, values.text_of(turn + i), tenant)
    end
  end
  values.add_members(shard.RING, members)
end

-- Where tenants stand after their turn: with more due at the ring's end, behind those that got none; barred from more
-- parked, else by what comes. Answers whether any left the ring.
function rounds.move_on(turns)
  local HEADS, RING = shard.HEADS, shard.RING
  local from, to = { [HEADS] = {}, [RING] = {} }, { [HEADS] = {}, [shard.PARKED] = {} }
  local joining, staying, left = {}, {}, false
  for _, turn in ipairs(turns) do
    if turn.seen >= turn.first or turn.last < turn.first then
      local tenant, at = turn.tenant, shard.NOW
      local was, is = noticed[tenant] and HEADS or RING, nil
      if turn.barred or not turn.more then -- else more is due
        at = tonumber(call('ZRANGE', shard.DUE[tenant], '0', '0', 'WITHSCORES')[2])
      end
      if at and at <= shard.NOW and not turn.barred then
        is, staying[#staying + 1] = RING, tenant
      elseif at then
        is = at > shard.NOW and HEADS or shard.PARKED
        values.push(to[is], at, tenant)
      end
      if was ~= is then
        from[was][#from[was] + 1] = tenant
      end
      noticed[tenant], left = nil, left or is ~= RING
    end
  end
  for _, tenant in ipairs(ripe) do
    if noticed[tenant] then
      joining[#joining + 1], from[HEADS][#from[HEADS] + 1] = tenant, tenant
    end
  end
  for _, tenant in ipairs(staying) do
    joining[#joining + 1] = tenant
  end
  for key, gone in pairs(from) do
    values.in_pieces('ZREM', key, gone)
  end
  for key, members in pairs(to) do
    values.add_members(key, members)
  end
  if #joining > 0 then
    join(joining)
  end
  return left
end

-- How many are left that could be claimed; of tenants far back in the ring, and behind plenty, each counts as one. And
-- whose turn is next, where there are others than those among KEYS.
function rounds.backlog()
  local left = call('ZCOUNT', shard.HEADS, '-inf', shard.NOW_TEXT) + call('ZCARD', shard.RING)
  left = rounds.schedules_due and left - 1 or left
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
