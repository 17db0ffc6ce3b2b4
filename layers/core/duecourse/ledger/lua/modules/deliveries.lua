-- Deliveries that a claim makes, to kinds that have a target: room at the target, tasks that wait for it, their leases.
--
-- ARGV    those of shard and notifications, and as the verb says: kind, target, how many it may have unbegun, lease ms
--         of delivery; of each kind that is worked where it is claimed: kind, "", 0, 0, and then no other kind is
--         claimed

local PUT_ASIDE = 900000 -- ms until it is looked at again, should nothing make it due before
local FOREIGN_ASIDE = 30000 -- the same of a kind that is worked elsewhere: whoever has it claims it meanwhile
local FOREIGN = 'kind:' -- before a kind that is not this claim's, in place of a target's name
local LOOKED_AT = 500 -- of those that wait, for each target
local WOKEN_AT_ONCE = 60 -- fewer than the tenants that one claim declares, for each may be another's
local delivered -- what names the places that this claim gives
local targets, by_kind, any -- name -> what is known of it; kind -> the same, false where it is worked here
local closed -- whether only kinds that are named are claimed

-- A kind as a target with no room for it, or for those who have it with all there is. `waited` is as in meta.
local function foreign(kind, waited, free)
  local name = FOREIGN .. kind
  targets[name] = { name = name, most = 0, ms = 0, lent = 0, out = 0, waited = waited, free = free }
  return targets[name]
end

-- Tasks of these kinds that were put aside where the kind is unknown are this claim's.
local function find_aside(kinds)
  local fields = {}
  for i, kind in ipairs(kinds) do
    fields[i] = 'most:' .. FOREIGN .. kind
  end
  for i, waited in ipairs(call('HMGET', shard.META, unpack(fields))) do
    if waited then
      foreign(kinds[i], waited, math.huge)
    end
  end
end

-- A target that was busy has fewer places (modules/busy.lua), until it has grown up to all of them again.
local function fit(target, fits)
  if fits and fits < target.most then
    target.most = fits
  elseif fits then
    call('HDEL', shard.META, 'fits:' .. target.name)
  end
end

-- Reads which kinds are handed over, and to which targets, from ARGV `at` on.
function deliveries.read_kinds(at)
  delivered, targets, by_kind, any, closed = {}, {}, {}, at <= #ARGV, false
  local kinds = {}
  for i = at, #ARGV, 4 do
    local kind, name = ARGV[i], ARGV[i + 1]
    kinds[#kinds + 1] = kind
    if name == '' then
      by_kind[kind], closed = false, true
    else
      targets[name] = targets[name]
        or { name = name, most = tonumber(ARGV[i + 2]), ms = tonumber(ARGV[i + 3]), lent = 0 }
      by_kind[kind] = targets[name]
    end
  end
  for name, target in pairs(targets) do
    local known = call('HMGET', shard.META, 'out:' .. name, 'most:' .. name, 'fits:' .. name,
      'each:' .. name)
    target.out, target.waited, target.each = tonumber(known[1] or 0), known[2], tonumber(known[4] or nil)
    fit(target, tonumber(match(known[3] or '', '^%d+')))
    target.free = target.most - target.out
  end
  if closed then
    find_aside(kinds)
  end
end

-- One that waits becomes due again, unless it is put aside no more. Answers whether it did.
local function make_due(target, member, tenant)
  local rest = sub(member, #target + 2)
  local due, aside, sid = sub(rest, 1, 13), sub(rest, 14, 26), sub(rest, 28)
  call('ZREM', shard.WAITING, member)
  if tonumber(call('ZSCORE', shard.DUE[tenant], sid) or nil) ~= tonumber(aside) then
    return false
  end
  call('ZADD', shard.DUE[tenant], record.due_score(sid, tonumber(due)), sid)
  tenants.rehead(tenant)
  return true
end

-- The longest due of those that wait for a target become due again, as many as it has room for. One that is no longer
-- put aside is forgotten there, and takes nobody's place. Tenants that it could not serve it adds to `want`.
local function wake(target, limit, want)
  local left, looked, members = math.min(target.free, limit, WOKEN_AT_ONCE), 0, nil
  repeat
    members = places.waiting_for(target.name, values.text_of(left))
    for _, member in ipairs(members) do
      local tenant = tenants.tenant_of(sub(member, #target.name + 29))
      if not shard.DUE[tenant] then
        want[#want + 1] = tenant
      elseif make_due(target.name, member, tenant) then
        left = left - 1
      end
    end
    looked = looked + #members
  until left <= 0 or #members == 0 or #want > 0 or looked >= LOOKED_AT
  if #members == 0 or not places.waiting_for(target.name, '1')[1] then
    call('HDEL', shard.META, 'most:' .. target.name)
    target.waited = nil
  end
end

-- How many this claim hands to a target that tasks wait for: whole events, or what it has left of its own limit.
local function free_for_whole(target, limit)
  local event = places.event_of(target.most, target.each)
  local free = target.free < event and 0 or math.min(target.free, limit)
  return free - free % math.min(event, limit)
end

-- Notes how many places a target has that tasks wait for: by that number what frees places rings for those tasks.
local function note_places(target)
  local most = values.text_of(target.most)
  if target.waited ~= most then
    target.waited = most
    call('HSET', shard.META, 'most:' .. target.name, most)
  end
end

-- What waits for a target that this claim hands nothing to becomes due too: its kind has another target by now, or
-- none.
function deliveries.wake_waiting(limit, want)
  if limit <= 0 then
    return
  end
  for _, target in pairs(targets) do
    if target.waited and target.free < math.huge then
      note_places(target) -- a busy target has fewer by now: rung by more, it would ring at once again and again
      target.free = free_for_whole(target, limit)
    end
    if target.waited and target.free > 0 then
      wake(target, limit, want)
    end
  end
  for _, name in ipairs(shard.WAKE and places.waited_for() or {}) do
    if not targets[name] and sub(name, 1, #FOREIGN) ~= FOREIGN then
      wake({ name = name, free = limit }, limit, want)
    end
  end
end

-- How many more there are at least, of this claim's kinds, that were put aside where their kind is unknown.
function deliveries.more_aside()
  for _, target in pairs(targets) do
    if target.waited and target.free == math.huge then
      return 1
    end
  end
  return 0
end

-- The target of a record that is handed over, nil or false of one that is worked where it is claimed.
function deliveries.target_of(data)
  if not any then
    return nil
  end
  local by, kind = unpack_struct(fields.LENGTHS_FORMAT, data, fields.FRONT_SIZE + fields.LENGTHS_AT)
  local from = fields.FRONT_SIZE + fields.REST_SIZE + 1 + by
  local name = sub(data, from, from + kind - 1)
  if by_kind[name] == nil and closed then
    by_kind[name] = foreign(name, call('HGET', shard.META, 'most:' .. FOREIGN .. name), 0)
  end
  return by_kind[name]
end

-- Due tasks that their target has no room for, {stored id, due, target...}, are due later, and wait: some already.
function deliveries.put_aside(aside)
  for i = 1, #aside, 3 do
    local sid, due, target = aside[i], aside[i + 1], aside[i + 2]
    local at = shard.NOW + (target.most == 0 and FOREIGN_ASIDE or PUT_ASIDE)
    local key = shard.DUE[tenants.tenant_of(sid)]
    local before = tonumber(call('ZSCORE', key, sid))
    if before ~= due then
      call('ZREM', shard.WAITING, places.waiting_member(target.name, due, before, sid))
    end
    call('ZADD', key, values.text_of(at), sid)
    call('ZADD', shard.WAITING, '0', places.waiting_member(target.name, due, at, sid))
    note_places(target)
  end
end

-- What stands before a lease of delivery.
function deliveries.deliver(sid, target)
  target.lent = target.lent + 1
  values.push(delivered, '0', places.place_of(sid, target.name))
  return target.name .. string.char(#target.name)
end

function deliveries.count()
  values.in_pieces('ZADD', shard.WAITING, delivered)
  for name, target in pairs(targets) do
    if target.lent > 0 then
      call('HINCRBY', shard.META, 'out:' .. name, target.lent)
    end
  end
end

-- How many tasks one event is to have, {target, how many...}, of targets that this claim hands tasks to; nil where
-- nothing is known.
function deliveries.fitting()
  local fitting = nil
  for name, target in pairs(targets) do
    if target.each and target.lent > 0 then
      fitting = fitting or {}
      values.push(fitting, name, target.each)
    end
  end
  return fitting
end

-- Lets nothing ring for what waits any more, unless there is room for some of it still.
function deliveries.stop_waking()
  if not shard.WAKE then
    return
  end
  for _, name in ipairs(places.waited_for()) do
    local known = call('HMGET', shard.META, 'out:' .. name, 'most:' .. name, 'each:' .. name)
    if known[2] and places.has_room(known[2] + 0, tonumber(known[1] or 0), tonumber(known[3] or nil)) then
      return
    end
  end
  call('HDEL', shard.META, 'wake')
  shard.WAKE = nil
end
