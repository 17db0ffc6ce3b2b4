-- What a claim makes of due records: it hands out those that can be worked, ends or puts off the others.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's and ending's
-- RETURNS nothing

--exports choose bury due_times pass_over put_off lease write_leases

local sub = string.sub
local FEW, LONG = 64, string.rep('-', 65) -- a zset that is to hold more than a few is made an index first, as in turns.lua
local later = {} -- the place of a record among those that are handed out -> the end of its delivery

-- Looks at what was gathered, in pieces. What it chooses it puts behind `handed` as it stands, {stored id, record...}, and
-- counts in `late`, due time -> how many; what a later version wrote it adds to `newer`. Answers the run of each, {stored id, opened record...} of what is past its
-- deadline, {stored id...} of what cannot be read, what its target has no room for (as `put_aside` takes it), the target of
-- each run that is handed over, the bytes of what is handed out (`used` before), and whether they, what a script may read,
-- or the `most` that it does not hand out are used up before the end: one it always looks at. A record that is cut off it
-- does not see, for all would pay for that: whoever
-- gets such a lease finds it, and it lapses.
function choose(turns, sids, handed, late, used, max_bytes, most, newer)
  local runs, gone, broken, records, base, read_to = {}, {}, {}, nil, 0, 0
  local now, count, n = NOW, 0, #handed
  local aside, to = {}, {}
  for _, turn in ipairs(turns) do
    local before = count
    for i = turn.first, turn.last do
      if i > read_to then
        base, read_to = i - 1, math.min(i - 1 + piece(i - 1), #sids)
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
        local target = target_of(data)
        local waits = target and target.free <= 0
        if used > 0 and not waits and used + size > max_bytes then -- which ends the claim
          turn.begun, turn.seen = count - before, i - 1
          return runs, gone, broken, aside, to, used, true
        end
        weight = weight + size
        if waits then
          push(aside, sid, due)
          aside[#aside + 1] = target
        else
          used, count, n = used + size, count + 1, n + 2
          runs[count], handed[n - 1], handed[n] = run, sid, data
          late[due] = (late[due] or 0) + 1
          if target then
            to[count], target.free = target, target.free - 1
          end
        end
      elseif data and is_newer(data) then
        newer[#newer + 1] = sid
      elseif data then
        local r = version == VERSION and open(data)
        if r then
          push(gone, sid, r)
        else
          broken[#broken + 1] = sid
        end
      end
      if weight >= BYTES or #gone + #broken + #aside / 1.5 >= 2 * most then
        turn.begun, turn.seen = count - before, i
        return runs, gone, broken, aside, to, used, true
      end
    end
    turn.begun, turn.seen = count - before, turn.last
  end
  return runs, gone, broken, aside, to, used, false
end

-- It dies unclaimed: the history's entry has no lease, the record keeps its last one.
function bury(sid, r)
  local fence, claimed = r.fence, r.claimed
  r.status, r.fence, r.claimed = DIED, 0, 0
  remember(r, 69, 'past its deadline')
  local told = tell_of(sid, r)
  r.fence, r.claimed = fence, claimed
  follow(told)
  call('ZADD', DEAD, NOW, sid)
  call('HSET', TASKS, sid, close(r))
end

-- When tasks stand due, before they are left: each `step`th of a list is a stored id.
function due_times(list, step)
  local times = {}
  for i = 1, #list, step do
    times[#times + 1] = call('ZSCORE', DUE[tenant_of(list[i])], list[i])
  end
  return times
end

-- What a later version wrote stays where it stood, and is passed over; `skipped` counts it, tenant -> how many stand before
-- what is not looked at yet.
function pass_over(newer, times, skipped)
  for i, sid in ipairs(newer) do
    local tenant = tenant_of(sid)
    call('ZADD', DUE[tenant], times[i], sid)
    skipped[tenant] = (skipped[tenant] or 0) + 1
  end
end

-- What cannot be read is due again later.
function put_off(broken)
  for _, sid in ipairs(broken) do
    call('ZADD', DUE[tenant_of(sid)], NOW + PUT_OFF, sid)
  end
end

-- Leases what was chosen last, with these runs and targets, behind the `n` that were handed out before; `lease_end` is what stands
-- behind each record and its own nonce: no lease's token tells another's.
function lease(runs, to, handed, n, nonces, lease_end)
  local count = #runs
  local fence = count > 0 and next_fence(count) - count
  local delivery_end = string.sub(lease_end, 1, -2) .. 'V'
  log_claimed(fence and fence + 1, count)
  for i = 1, count do
    n = n + 2
    local target, nonce = to[i], sub(nonces, 4 * n - 7, 4 * n)
    if target then
      local before = deliver(handed[n - 1], target)
      handed[n] = handed[n] .. before .. pack(LEASE_FRONT, runs[i] + 1, fence + i) .. nonce .. delivery_end
      later[n] = text_of(NOW + target.ms)
    else
      handed[n] = handed[n] .. pack(LEASE_FRONT, runs[i] + 1, fence + i) .. nonce .. lease_end
    end
  end
  return count
end

-- Writes down what is handed out, and until when.
function write_leases(handed, ends_at)
  local leased = {}
  for n = 2, #handed, 2 do
    leased[n - 1], leased[n] = later[n] or ends_at, handed[n - 1]
  end
  in_pieces('HSET', TASKS, handed)
  if #leased > FEW then
    call('ZADD', LEASED, 0, LONG)
    in_pieces('ZADD', LEASED, leased)
    call('ZREM', LEASED, LONG)
  else
    in_pieces('ZADD', LEASED, leased)
  end
end
