-- What a claim makes of due records: it hands out those that can be worked, ends or puts off the others.
--
-- ARGV    those of shard and notifications

local MARKED_APART = fields.APART * 2 ^ 24 -- in the four bytes that begin with the flags

local used, max_bytes -- bytes of what is handed out, and how many they may be after the first
local handed, payloads -- {stored id, record...}; {place of a record among those, its payload where that is apart...}
local later -- place of a record in `handed` -> the end of its delivery
local unread -- {stored id...} of what cannot be read

function choice.begin()
  handed, payloads, later, unread = {}, {}, {}, {}
end

-- Begins a claim, which has leased so many bytes before.
function choice.open(before, most)
  used, max_bytes = before, most
end

-- Looks at what was gathered, in pieces, and puts what it chooses behind what is handed out, as it stands. Answers the
-- round, a table:
--   runs     of what it chose
--   to       targets of those that are handed over
--   gone     {stored id, opened record...} of what is past its deadline
--   broken   {stored id...} of what cannot be read
--   aside    as `put_aside` takes it, of what its target has no room for
-- It also answers whether it stopped before the end: the bytes of a claim, what a script may read, or the `most` that
-- it does not hand out are used up. One it always looks at. What is put aside leaves the list of stored ids, for it
-- stays among what is due. A record that is cut off is not seen here, for that would slow every claim: whoever gets
-- such a lease finds it, and it lapses.
function choice.choose(turns, sids, most)
  local runs, to, gone, broken, aside = {}, {}, {}, {}, {}
  local round = { runs = runs, to = to, gone = gone, broken = broken, aside = aside }
  local records, base, read_to, now, count, n = nil, 0, 0, shard.NOW, 0, #handed
  for _, turn in ipairs(turns) do
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
      local known = version == fields.VERSION
      if known and (deadline == 0 or deadline > now) then
        local target, field, more = deliveries.target_of(data), nil, nil
        local waits = target and target.free <= 0
        if marks >= MARKED_APART then
          field, more = bodies.of(sid, data)
          size = size + (more or 0)
        end
        if used > 0 and not waits and used + size > max_bytes then -- which ends the claim
          return round, true
        end
        shard.weight = shard.weight + size
        local payload = field and not waits and call('HGET', shard.TASKS, field)
        if waits then
          values.push(aside, sid, due)
          aside[#aside + 1], sids[i] = target, ''
        elseif payload or marks < MARKED_APART then
          used, count, n, turn.begun = used + size, count + 1, n + 2, turn.begun + 1
          runs[count], handed[n - 1], handed[n] = run, sid, data
          if target then
            to[count], target.free = target, target.free - 1
          end
          if payload then
            values.push(payloads, n / 2, payload)
          end
        else
          broken[#broken + 1] = sid
        end
      elseif data then
        local r = known and record.open(data)
        if r then
          values.push(gone, sid, r)
        else
          broken[#broken + 1] = sid
        end
      end
      turn.seen = i
      if shard.weight >= record.BYTES or #gone + #broken + #aside / 1.5 >= 2 * most then
        return round, true
      end
    end
  end
  return round, false
end

-- It dies unclaimed: the history's entry has no lease, the record keeps its last one.
function choice.expire(sid, r)
  local fence, claimed = r.fence, r.claimed
  r.status, r.fence, r.claimed = fields.DIED, 0, 0
  record.remember_expired(r)
  local to_notify = notifications.of(sid, r)
  r.fence, r.claimed = fence, claimed
  notifications.add(to_notify)
  record.put(sid, r)
end

-- What cannot be read is due again later.
function choice.put_off(broken)
  for _, sid in ipairs(broken) do
    unread[#unread + 1] = sid
    call('ZADD', shard.DUE[tenants.tenant_of(sid)], shard.NOW + record.PUT_OFF, sid)
  end
end

-- Leases what was chosen in a round, with the fences after this one; `lease_end` is what stands behind each record and
-- its own nonce: no lease's token tells another's. Of a claim, the first `at_once` are not claimed ahead. Answers how
-- many.
function choice.lease(round, fence, nonces, lease_end, at_once)
  local runs, to, count, delivery_end = round.runs, round.to, #round.runs, sub(lease_end, 1, -2) .. 'V'
  local n, ahead_end = #handed - 2 * count, lease_end
  if #handed > 2 * at_once then
    ahead_end = sub(lease_end, 1, -3) .. string.char(byte(lease_end, -2) + fields.AHEAD) .. 'L'
  end
  limits.log_claimed(fence + 1, count)
  for i = 1, count do
    n = n + 2
    local target, nonce = to[i], sub(nonces, 4 * n - 7, 4 * n)
    if target then
      local before = deliveries.deliver(handed[n - 1], target)
      handed[n] = handed[n] .. before .. pack(layout.LEASE_FRONT, runs[i] + 1, fence + i) .. nonce .. delivery_end
      later[n] = values.text_of(shard.NOW + target.ms)
    else
      handed[n] = handed[n] .. pack(layout.LEASE_FRONT, runs[i] + 1, fence + i) .. nonce
        .. (n > 2 * at_once and ahead_end or lease_end)
    end
  end
  return count
end

-- Writes down what is handed out, and until when. Answers it, with what cannot be read, each with "";
-- and the payloads that are apart.
function choice.write_leases(ends_at)
  local leased = {}
  for n = 2, #handed, 2 do
    leased[n - 1], leased[n] = later[n] or ends_at, handed[n - 1]
  end
  values.in_pieces('HSET', shard.TASKS, handed)
  values.add_members(shard.LEASED, leased)
  for _, sid in ipairs(unread) do
    values.push(handed, sid, '')
  end
  return handed, payloads
end
