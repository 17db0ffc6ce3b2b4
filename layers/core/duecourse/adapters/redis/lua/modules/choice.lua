-- What a claim makes of due records: it hands out those that can be worked, ends or puts off the others.
--
-- ARGV    those of shard and endings

-- A zset that is to hold more than a few is made an index first, as in rounds.lua.
local FEW, LONG = 64, string.rep('-', 65)
local MARKED_APART = fields.APART * 2 ^ 24 -- in the four bytes that begin with the flags
local later -- the place of a record among those that are handed out -> the end of its delivery

function choice.begin()
  later = {}
end

-- Looks at what was gathered, in pieces. What it chooses it puts behind `handed` as it stands, {stored id, record...},
-- and counts in `late`, due time -> how many; payloads that stand apart it puts into `payloads`, {place among the pairs
-- of `handed`, payload...}; what a later version wrote it adds to `newer`. Answers the run of each, {stored id, opened
-- record...} of what is past its deadline, {stored id...} of what cannot be read, what its target has no room for (as
-- `put_aside` takes it), the target of each run that is handed over, the bytes of what is handed out (`used` before),
-- and whether they, what a script may read, or the `most` that it does not hand out are used up before the end: one it
-- always looks at. A record that is cut off it does not see, for all would pay for that: whoever gets such a lease
-- finds it, and it lapses.
function choice.choose(turns, sids, handed, payloads, late, used, max_bytes, most, newer)
  local runs, gone, broken, records, base, read_to = {}, {}, {}, nil, 0, 0
  local now, count, n = shard.NOW, 0, #handed
  local aside, to = {}, {}
  for _, turn in ipairs(turns) do
    local before = count
    for i = turn.first, turn.last do
      if i > read_to then
        base, read_to = i - 1, math.min(i - 1 + record.piece(i - 1), #sids)
        records = call('HMGET', shard.TASKS, unpack(sids, i, read_to))
      end
      local sid, data = sids[i], records[i - base]
      local size = data and #data or 0
      local version, marks, run, _, due, deadline
      if size >= fields.SMALLEST then
        -- To skip a byte costs as much as to read six.
        version, marks, run, _, due, _, _, deadline = unpack_struct('>BI4I4I2I6I6I6I6', data)
      end
      local known = version and version >= fields.OLDEST and version <= fields.NEWEST
      if known and (deadline == 0 or deadline > now) then
        local target = handover.target_of(data)
        local waits = target and target.free <= 0
        local field, more
        if marks >= MARKED_APART then
          field, more = bodies.of(sid, data)
          size = size + (more or 0)
        end
        if used > 0 and not waits and used + size > max_bytes then -- which ends the claim
          turn.begun, turn.seen = count - before, i - 1
          return runs, gone, broken, aside, to, used, true
        end
        shard.weight = shard.weight + size
        if waits then
          values.push(aside, sid, due)
          aside[#aside + 1] = target
        else
          local payload = field and call('HGET', shard.TASKS, field)
          if payload or marks < MARKED_APART then
            used, count, n = used + size, count + 1, n + 2
            runs[count], handed[n - 1], handed[n] = run, sid, data
            late[due] = (late[due] or 0) + 1
            if target then
              to[count], target.free = target, target.free - 1
            end
            if payload then
              values.push(payloads, n / 2, payload)
            end
          else
            broken[#broken + 1] = sid
          end
        end
      elseif data and record.is_newer(data) then
        newer[#newer + 1] = sid
      elseif data then
        local r = known and record.open(data)
        if r then
          values.push(gone, sid, r)
        else
          broken[#broken + 1] = sid
        end
      end
      if shard.weight >= record.BYTES or #gone + #broken + #aside / 1.5 >= 2 * most then
        turn.begun, turn.seen = count - before, i
        return runs, gone, broken, aside, to, used, true
      end
    end
    turn.begun, turn.seen = count - before, turn.last
  end
  return runs, gone, broken, aside, to, used, false
end

-- It dies unclaimed: the history's entry has no lease, the record keeps its last one.
function choice.expire(sid, r)
  local fence, claimed = r.fence, r.claimed
  r.status, r.fence, r.claimed = fields.DIED, 0, 0
  record.remember(r, fields.RAN_EXPIRED, 'past its deadline')
  local notifications = endings.notifications_of(sid, r)
  r.fence, r.claimed = fence, claimed
  endings.notify(notifications)
  call('ZADD', shard.DEAD, shard.NOW, sid)
  call('HSET', shard.TASKS, sid, record.close(r))
end

-- When tasks stand due, before they are left: each `step`th of a list is a stored id.
function choice.due_times(list, step)
  local times = {}
  for i = 1, #list, step do
    times[#times + 1] = call('ZSCORE', shard.DUE[tenants.tenant_of(list[i])], list[i])
  end
  return times
end

-- What a later version wrote stays where it stood, and is passed over; `skipped` counts it, tenant -> how many stand
-- before what is not looked at yet.
function choice.pass_over(newer, times, skipped)
  for i, sid in ipairs(newer) do
    local tenant = tenants.tenant_of(sid)
    call('ZADD', shard.DUE[tenant], times[i], sid)
    skipped[tenant] = (skipped[tenant] or 0) + 1
  end
end

-- What cannot be read is due again later.
function choice.put_off(broken)
  for _, sid in ipairs(broken) do
    call('ZADD', shard.DUE[tenants.tenant_of(sid)], shard.NOW + record.PUT_OFF, sid)
  end
end

-- Leases what was chosen last, with these runs and targets, behind the `n` that were handed out before; `lease_end` is
-- what stands behind each record and its own nonce: no lease's token tells another's.
function choice.lease(runs, to, handed, n, nonces, lease_end)
  local count = #runs
  local fence = count > 0 and shard.next_fence(count) - count
  local delivery_end = sub(lease_end, 1, -2) .. 'V'
  handout.log_claimed(fence and fence + 1, count)
  for i = 1, count do
    n = n + 2
    local target, nonce = to[i], sub(nonces, 4 * n - 7, 4 * n)
    if target then
      local before = handover.deliver(handed[n - 1], target)
      if byte(handed[n]) < 5 then -- which knows no deliveries
        handed[n] = string.char(shard.LAYOUT) .. sub(handed[n], 2)
      end
      handed[n] = handed[n] .. before .. pack(handout.LEASE_FRONT, runs[i] + 1, fence + i) .. nonce .. delivery_end
      later[n] = values.text_of(shard.NOW + target.ms)
    else
      handed[n] = handed[n] .. pack(handout.LEASE_FRONT, runs[i] + 1, fence + i) .. nonce .. lease_end
    end
  end
  return count
end

-- Writes down what is handed out, and until when.
function choice.write_leases(handed, ends_at)
  local leased = {}
  for n = 2, #handed, 2 do
    leased[n - 1], leased[n] = later[n] or ends_at, handed[n - 1]
  end
  values.in_pieces('HSET', shard.TASKS, handed)
  if #leased > FEW then
    call('ZADD', shard.LEASED, 0, LONG)
    values.in_pieces('ZADD', shard.LEASED, leased)
    call('ZREM', shard.LEASED, LONG)
  else
    values.in_pieces('ZADD', shard.LEASED, leased)
  end
end
