-- Schedules tasks, each as its mode says where its id stands already.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's, then: registered (1 once the caller has put the shard on record), echo (1 to answer the records),
--         alone ("" or "<tenant>/<group>"), since (a generation), then for each task: stored id, mode (k keep,
--         r replace, j reject, d debounce, or a<stored id>\0<stored id>: apart from what its group has between those,
--         which is kept), due ("+ms" from now, or epoch ms), deadline ("" none, "+ms" from due, or
--         epoch ms), max_wait ms, group, rest of the record
-- RETURNS {now, bell_at, {reply...}, {record...} where echo}; a reply is 1 created, 2 kept, 3 replaced, 4 debounced,
--         -2 scheduled, -3 leased, -6 dead; -7 alone, and nothing is added, where a task of the group `alone` is
--         live or newer than `since`

--include prelude fresh

local echo = ARGV[FIRST + 1] == '1'
local ITEM = 7
local alone = ARGV[FIRST + 2]
local first = FIRST + 4
local count = (#ARGV - first + 1) / ITEM
local CREATED, KEPT, REPLACED, DEBOUNCED = 1, 2, 3, 4
local APART = 97 -- a

local fence -- of the task before
local replies, records = {}, {}
local written, scheduled, grouped = {}, {}, {} -- what is written in one go for the batch
local soonest = {} -- of each tenant

local function due_and_deadline(at)
  local due, deadline = instant(ARGV[at + 2], NOW), ARGV[at + 3]
  return due, deadline == '' and 0 or instant(deadline, due)
end

-- Puts a fresh record on the batch's list; `how` says how it came (0 created, 1 replaced ...), as `flags` keeps it;
-- `over` makes of it what takes the place of another.
local function put(sid, at, how, due, deadline, created, over)
  local tenant = tenant_of(sid)
  fence = fence + 1
  local data = fresh_record(how, due, created, fence, deadline, ARGV[at + 6])
  if over then
    data = over(data)
  end
  written[#written + 1] = sid
  written[#written + 1] = data
  local members = scheduled[tenant]
  if not members then
    members = {}
    scheduled[tenant], soonest[tenant] = members, math.min(due, soonest[tenant] or due)
  end
  members[#members + 1] = text_of(due)
  members[#members + 1] = sid
  if due < soonest[tenant] then
    soonest[tenant] = due
  end
  if ARGV[at + 5] ~= '' then
    push(grouped, '0', group_member(sid, ARGV[at + 5]))
  end
  return data
end

local function flush()
  in_pieces('HSET', TASKS, written)
  for tenant, members in pairs(scheduled) do
    in_pieces('ZADD', DUE[tenant], members)
  end
  in_pieces('ZADD', GROUPS, grouped)
  written, scheduled, grouped = {}, {}, {}
end

-- What an add does where its id stands already, made only where one does: to make functions is what a script spends
-- its time on. Answers how a record is read, and how one is added over it.
local function over_others()
  --include record history

  local function put_in_place(sid, at, old, how, due, deadline, created, over)
    leave_group(sid, old.rest)
    call('ZREM', DONE, sid)
    call('ZREM', DEAD, sid)
    return put(sid, at, how, due, deadline, created, over)
  end

  local function created_over(sid, at, old, how)
    local due, deadline = due_and_deadline(at)
    return put_in_place(sid, at, old, how, due, deadline, NOW, how > 0 and function(data)
      local r = open(data)
      inherit(r, old)
      return close(r)
    end)
  end

  -- A replacement for a task that runs waits beside it until the lease ends.
  local function put_successor(sid, at, old)
    local due, deadline = due_and_deadline(at)
    if has_successor(old) then
      drop_successor(sid, old)
    end
    old.flags = old.flags + SUCCESSOR
    call('HINCRBY', META, 'successors', 1)
    fence = fence + 1
    local data = fresh_record(REPLACED - 1, due, NOW, fence, deadline, ARGV[at + 6])
    call('HSET', TASKS, sid, close(old), sid .. '+', data)
    join_group(sid, ARGV[at + 6])
    return data
  end

  -- Whether a record came of this task of this call, or of a later one with the same id in its batch.
  local function came_of(rest, mine)
    return string.sub(rest, 1, 6) == string.sub(mine, 1, 6)
      and unpack_struct('>I2', rest, 7) >= unpack_struct('>I2', mine, 7)
  end

  -- The answer to a call that is sent again because its reply was lost.
  local function resent(sid, at, old, data)
    local mine = ARGV[at + 6]
    local waiting = has_successor(old) and call('HGET', TASKS, sid .. '+')
    local successor = open(waiting)
    if successor and came_of(successor.rest, mine) then
      return REPLACED, waiting
    end
    if came_of(old.rest, mine) then
      return math.floor(old.flags / 4) % 4 + 1, data
    end
  end

  -- Debouncing pushes a task back, never before the due time it had nor past its longest wait.
  local function debounce(sid, at, old)
    local due, deadline = due_and_deadline(at)
    local latest = old.created + tonumber(ARGV[at + 4])
    local pushed = math.max(old.due, math.min(due, latest))
    if string.byte(ARGV[at + 3]) == 43 then -- a relative deadline counts from the due time that came of it
      deadline = deadline - due + pushed
    end
    return put_in_place(sid, at, old, DEBOUNCED - 1, pushed, deadline, old.created, function(data)
      local r = open(data)
      debounced(r, old, by_of(r.rest))
      return close(r)
    end)
  end

  local REFUSALS = { [SCHEDULED] = -2, [LEASE] = -3, [DIED] = -6 }

  return open, function(sid, at, data, old)
    local mode = ARGV[at + 1]
    local reply, record = resent(sid, at, old, data)
    if reply then
      return reply, record
    elseif string.byte(mode) == APART then
      return KEPT, data
    end
    local live = old.status == SCHEDULED or old.status == LEASE
    if old.status == FINISHED or old.status == CANCELLED then
      return CREATED, created_over(sid, at, old, CREATED - 1)
    elseif mode == 'k' and live then
      return KEPT, data
    elseif mode == 'j' or (old.status == DIED and mode ~= 'r') then
      return REFUSALS[old.status], ''
    elseif old.status == LEASE then
      return REPLACED, put_successor(sid, at, old)
    elseif mode == 'd' then
      return DEBOUNCED, debounce(sid, at, old)
    end
    return REPLACED, created_over(sid, at, old, REPLACED - 1)
  end
end

local open_record, add_over -- nil until an id stands already

local function read(data)
  if not add_over then
    open_record, add_over = over_others()
  end
  return open_record(data)
end

-- Whether its group has a task that this one must be apart from, those of this batch among them.
local function neighbour(at)
  local first, last = string.match(ARGV[at + 1], '^a(.-)%z(.*)$')
  if #grouped > 0 then
    flush()
  end
  local group = ARGV[at + 5]
  local from, to = '[' .. group_member(first, group), '[' .. group_member(last, group)
  return #call('ZRANGEBYLEX', GROUPS, from, to, 'LIMIT', 0, 1) > 0
end

if alone ~= '' then
  local since = tonumber(ARGV[FIRST + 3])
  for _, member in ipairs(call('ZRANGEBYLEX', GROUPS, '[' .. alone .. '\0', '(' .. alone .. '\1')) do
    local r = read(call('HGET', TASKS, string.match(member, '%z(.*)$')))
    if r and (r.status == SCHEDULED or r.status == LEASE or r.generation > since) then
      return -7
    end
  end
end

-- A fence for each task, drawn at once. A shard that never drew one is not on record yet: its tasks would not be found.
fence = next_fence(count) - count
if fence == 0 and ARGV[FIRST] ~= '1' then
  call('HDEL', META, 'fence')
  return -8
elseif fence == 0 and COUNT ~= '1' then
  call('HSET', META, 'shards', COUNT)
end

local sids, seen = {}, {}
for i = 1, count do
  sids[i] = ARGV[first + (i - 1) * ITEM]
end
local standing, olds = call('HMGET', TASKS, unpack(sids)), {}
for i = 1, count do
  if standing[i] then -- all are read before any is changed: else a part of the batch would be added
    olds[i] = read(standing[i]) or error('the record of ' .. sids[i] .. ' cannot be read')
  end
end
for i = 1, count do
  local sid, at = sids[i], first + (i - 1) * ITEM
  local data, old = standing[i], olds[i]
  if seen[sid] then -- twice in one batch: the second sees what the first did
    flush()
    data = call('HGET', TASKS, sid)
    old = read(data)
  end
  seen[sid] = true
  if not data and string.byte(ARGV[at + 1]) == APART and neighbour(at) then
    replies[i], records[i] = KEPT, ''
  elseif data then
    replies[i], records[i] = add_over(sid, at, data, old)
  else
    local due, deadline = due_and_deadline(at)
    replies[i], records[i] = CREATED, put(sid, at, CREATED - 1, due, deadline, NOW)
  end
end
flush()

-- What is only added, and later than a bell that hangs at the earliest instant, cannot change it.
local function bell_stays()
  local hung = bell_hung()
  if add_over or not hung or hung < NOW or hung ~= earliest() then
    return nil
  end
  for tenant, due in pairs(soonest) do
    local head = tonumber(due > hung and call('ZSCORE', HEADS, tenant) or nil)
    if not head or head > due then
      return nil
    end
  end
  return hung
end

local bell_at = bell_stays()
if not bell_at then
  local fresh = false
  for tenant, due in pairs(soonest) do
    rehead(tenant)
    fresh = fresh or due <= NOW
  end
  bell_at = hang(fresh)
end
return { NOW, bell_at, replies, echo and records or {} }
