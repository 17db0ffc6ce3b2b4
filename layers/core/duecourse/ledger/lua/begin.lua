-- Begins tasks that were handed over: the lease of each delivery becomes that of its run.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard and notifications, then: lease ms from now, how many tasks one event of this target is to have
--         (0 where its function does not know), of all deliveries in one, 22 bytes each: token of the delivery (14) and
--         nonce of the worker (8), which makes the new token; the stored id of each
-- RETURNS {now, bell_at, {token, or "" where it is lost, run, how late it begins (ms)...}, end of the leases}, fewer
--         than deliveries where its bytes ran out; the same delivery and nonce again get the same token
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local SIZE, HEAD = 22, '>c14c8'
local FIRST = shard.FIRST + 2 -- before the stored ids
local lease_ms, each, HEADS = tonumber(ARGV[shard.FIRST]), tonumber(ARGV[shard.FIRST + 1]), ARGV[shard.FIRST + 2]
local count, ends_at = #HEADS / SIZE, shard.NOW + lease_ms
local ENDS_AT = values.text_of(ends_at)
local answers, late, leased, waited = {}, {}, {}, {}
local beginning = {} -- those that begin
local works = {} -- kind of what begins -> its target
call('ZREM', shard.LEASED, '')

-- A delivery that is not to begin any more: its replacement takes its place, or it dies as one past its deadline that
-- is claimed.
local function give_up(sid, r)
  local tenant, expired, to_notify = tenants.tenant_of(sid), leases.expired(r), {}
  if expired then
    record.remember_expired(r)
    r.last = 0
  end
  places.free_place(sid, r.target)
  leases.end_delivery(r)
  r.status = expired and fields.DIED or fields.SCHEDULED
  call('ZREM', shard.LEASED, sid)
  leases.count_running({ [tenant] = -1 }, 0)
  if expired then
    to_notify = notifications.of(sid, r)
  end
  record.put(sid, record.has_successor(r) and history.succeed(sid, r) or r)
  tenants.rehead(tenant)
  notifications.add(to_notify)
end

local function answer(i, token, run, ms)
  answers[3 * i - 2], answers[3 * i - 1], answers[3 * i] = token, run, ms
end

-- Whether a record stands there as a delivery under this token, as a claim left it, before its deadline and not
-- replaced. A record that broke since is not seen, as in a claim.
local function waits(data, token)
  if #data < fields.SMALLEST + fields.BEGUN_SIZE or byte(data, -1) ~= fields.HANDED
    or sub(data, fields.TOKEN_FROM, fields.TOKEN_TO) ~= token then
    return nil
  end
  -- FRONT of layout.py, up to the deadline; the first I4 is flags, last, count and trigger.
  local version, _, _, _, due, _, _, deadline = unpack_struct('>BI4I4I2I6I6I6I6', data)
  local replaced = byte(data, 2) % (2 * fields.SUCCESSOR) >= fields.SUCCESSOR
  return version == fields.VERSION and not replaced and (deadline == 0 or deadline > shard.NOW) and due
end

-- Notes what begins: its record is written at the end, once all fences are drawn in one.
local function begin(i, sid, data, token, nonce, due)
  local by, kind = unpack_struct(fields.LENGTHS_FORMAT, data, fields.FRONT_SIZE + fields.LENGTHS_AT)
  local from = fields.FRONT_SIZE + fields.REST_SIZE + 1 + by
  local size = byte(data, -fields.BEGUN_SIZE - 1)
  local target = sub(data, -fields.BEGUN_SIZE - 1 - size, -fields.BEGUN_SIZE - 2)
  local ms = math.max(shard.NOW - due, 0)
  places.free_place(sid, target)
  local _, power = math.frexp(math.max(shard.NOW - unpack_struct('>I6', data, #data + fields.TOKEN_TO + 2), 0))
  waited[power] = (waited[power] or 0) + 1
  works[sub(data, from, from + kind - 1)] = target
  late[ms] = (late[ms] or 0) + 1
  beginning[#beginning + 1] = {
    place = i, sid = sid, nonce = nonce, late = ms, data = data,
    before = sub(data, 1, -fields.BEGUN_SIZE - 2 - size) .. token,
  }
end

-- A delivery that does not wait as a claim left it: replaced, past its deadline, begun before, or gone.
local function begin_not(i, sid, data, token, nonce)
  local r = record.open(data)
  if r and r.target and leases.is_leased(r, token) and (leases.expired(r) or record.has_successor(r)) then
    give_up(sid, r)
  end
  if r and r.status == fields.LEASE and r.delivery == token and r.nonce == nonce then
    values.push(leased, ENDS_AT, sid)
    answer(i, leases.token_of(r), r.run, math.max(r.claimed - r.due, 0))
  else
    leases.miss(token)
  end
end

local found, base, read_to, seen = nil, 0, 0, {}
for i = 1, count do
  if i > read_to then
    if shard.weight >= record.BYTES then
      break
    end
    base, read_to = i - 1, math.min(i - 1 + record.piece(i - 1), count)
    found = call('HMGET', shard.TASKS, unpack(ARGV, FIRST + i, FIRST + read_to))
  end
  local sid, data = ARGV[FIRST + i], found[i - base]
  local token, nonce = unpack_struct(HEAD, HEADS, SIZE * (i - 1) + 1)
  answer(i, '', 0, 0)
  if not data then
    leases.miss(token)
  elseif not seen[sid] then -- one that is there twice begins once
    seen[sid] = true
    local due = waits(data, token)
    if due then
      shard.weight = shard.weight + #data
      begin(i, sid, data, token, nonce, due)
    else
      begin_not(i, sid, data, token, nonce)
    end
  end
end

if #beginning > 0 then
  local fence, written, now = shard.next_fence(#beginning) - #beginning, {}, pack('>I6', shard.NOW)
  for k, one in ipairs(beginning) do
    local new = pack('>I6', fence + k) .. one.nonce
    local run = sub(one.data, -fields.BEGUN_SIZE, fields.TOKEN_FROM - 1)
    values.push(written, one.sid, one.before .. run .. new .. now .. sub(one.data, -2, -2) .. 'W')
    values.push(leased, ENDS_AT, one.sid)
    answer(one.place, new, unpack_struct('>I4', run), one.late)
  end
  values.in_pieces('HSET', shard.TASKS, written)
end
values.add_members(shard.LEASED, leased)
durations.count_late(late)
durations.add(numbers.WAIT, waited)
local minute = pack('>I4', math.floor(shard.NOW / numbers.MINUTE))
if sub(shard.NUMBERS, 1, 4) ~= minute then
  require 'lines'
  lines.close(minute)
end
numbers.write()
for kind, target in pairs(works) do
  busy.begins(target, kind, ends_at, each)
end
if shard.ended or shard.occurred then
  require 'announce'
  announce.ends(shard.ended)
end
return leases.answer({ shard.NOW, bell.hang(false), answers, ends_at })
