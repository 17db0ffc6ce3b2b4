-- Schedules tasks, each as its mode says where its id stands already.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then: registered (1 once the caller has put the shard on record), echo (1 to answer the records),
--         alone ("" or "<tenant>/<group>"), since (a generation), then for each task: stored id, mode (k keep,
--         r replace, j reject, d debounce, or a<stored id>\0<stored id>: apart from what its group has between those,
--         which is kept), due ("+ms" from now, or epoch ms), deadline ("" none, "+ms" from due, or
--         epoch ms), max_wait ms, group, rest of the record
-- RETURNS {now, bell_at, {reply...}, {record...} where echo}; a reply is 1 created, 2 kept, 3 replaced, 4 debounced,
--         -2 scheduled, -3 leased, -6 dead, -11 it would be pushed past its deadline; -7 alone, and nothing is added, where a
--         task of the group `alone` is live or newer than `since`. There are fewer replies than tasks where so much stands
--         in their places that its bytes ran out: the others are not added

--include fresh

-- The usual add: one task of no group, later than its tenant's next and than a bell that hangs as early as anything needs,
-- where nothing has its id. It changes neither the bell nor the tenant's place, and makes none of the functions below, which
-- takes longer than all that it does. What it does not take goes on below, with nothing written.
if #ARGV == 14 and ARGV[6] == '' and ARGV[11] == '' and ARGV[13] == '' then
  local call, meta, sid = redis.call, KEYS[8], ARGV[8]
  local now, hung = tonumber(ARGV[1]), nil
  if now then
    hung = call('HGET', meta, 'bell_at')
  else
    local time = call('TIME')
    now, hung = time[1] * 1000 + math.floor(time[2] / 1000), call('GET', KEYS[9])
  end
  local after = string.match(ARGV[10], '^%+(%d+)$')
  local due = after and now + after or tonumber(ARGV[10])
  hung = tonumber(hung or nil)
  if hung and now <= hung and hung < due then
    local tenant, first = string.match(sid, '^[^/]*'), call('ZRANGE', KEYS[2], '0', '0', 'WITHSCORES')
    local head = tonumber(first[1] == tenant and first[2] or call('ZSCORE', KEYS[2], tenant) or nil)
    local lease = tonumber(call('ZRANGE', KEYS[4], '0', '0', 'WITHSCORES')[2])
    local right = head and head <= due and hung <= tonumber(first[2]) and hung <= (lease or hung) and call('ZCARD', KEYS[3]) == 0
    local fence, leaving, wake, shards, clock = unpack(call('HMGET', meta, 'fence', 'leaving', 'wake', 'shards', 'clock'))
    local ours = fence and not leaving and not wake and (shards or ARGV[3]) == ARGV[3] and (clock or ARGV[1] == '')
    if right and ours and call('HEXISTS', KEYS[1], sid) == 0 then
      local data = fresh_record(0, due, now, call('HINCRBY', meta, 'fence', '1'), 0, ARGV[14])
      call('HSET', KEYS[1], sid, data)
      call('ZADD', KEYS[14], string.format('%d', due), sid)
      return { now, hung, { 1 }, ARGV[5] == '1' and { data } or {} }
    end
  end
end

--include prelude

local echo = ARGV[FIRST + 1] == '1'
local ITEM = 7
local alone = ARGV[FIRST + 2]
local first = FIRST + 4
local count = (#ARGV - first + 1) / ITEM
local CREATED, KEPT, REPLACED, DEBOUNCED = 1, 2, 3, 4
local APART = 97 -- a
local BYTES, PIECE = 2000000, 16 -- what it reads of what stands there, and how many at a time

local fence -- of the task before
local replies, records = {}, {}
local written, scheduled, grouped = {}, {}, {} -- what is written in one go for the batch
local soonest = {} -- of each tenant

local function due_and_deadline(at)
  local due, deadline = instant(ARGV[at + 2], NOW), ARGV[at + 3]
  return due, deadline == '' and 0 or instant(deadline, due)
end

-- How a record comes, as `fresh_record` takes it.
local function came(how, at)
  return how + (string.byte(ARGV[at + 3], 1) == 43 and COUNTS / 4 or 0)
end

-- Puts a fresh record on the batch's list; `how` says how it came (0 created, 1 replaced ...), as `flags` keeps it;
-- `over` makes of it what takes the place of another.
local function put(sid, at, how, due, deadline, created, over)
  local tenant = tenant_of(sid)
  fence = fence + 1
  local data = fresh_record(came(how, at), due, created, fence, deadline, ARGV[at + 6])
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

-- How a record is read and how one is added over it: made where one must be read, for to make functions is what a script
-- spends its time on.
local function over_others()
  --include record history over
end

local open_record, add_over
local stood = false -- whether any id of the batch did

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

-- What stands there is all read before any is changed: else a part of what this adds would be added. Of a batch that is to
-- be added as one, all; else as much as a script may read.
local sids, standing, olds, bytes = {}, {}, {}, 0
for i = 1, count do
  sids[i] = ARGV[first + (i - 1) * ITEM]
end
for i = 1, count, PIECE do
  if bytes >= BYTES and alone == '' then
    count = i - 1
    break
  end
  local last = math.min(i + PIECE - 1, count)
  for j, data in ipairs(call('HMGET', TASKS, unpack(sids, i, last))) do
    if data then
      standing[i + j - 1], bytes = data, bytes + #data
      olds[i + j - 1] = read(data) or error('the record of ' .. sids[i + j - 1] .. ' cannot be read')
    end
  end
end

-- A fence for each task, drawn at once. A shard that never drew one is not on record yet, and one that
-- is leaving may not be: its tasks would not be found.
fence = next_fence(count) - count
if LEAVING and ARGV[FIRST] ~= '1' then
  return -8
elseif LEAVING then
  call('HDEL', META, 'leaving')
elseif fence == 0 and ARGV[FIRST] ~= '1' then
  call('HDEL', META, 'fence')
  return -8
elseif fence == 0 and COUNT ~= '1' then
  call('HSET', META, 'shards', COUNT)
end

local seen = {}
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
    stood = true
    replies[i], records[i] = add_over(sid, at, data, old) -- there is one, for its record was read
  else
    local due, deadline = due_and_deadline(at)
    replies[i], records[i] = CREATED, put(sid, at, CREATED - 1, due, deadline, NOW)
  end
end
flush()

-- What is only added, and later than a bell that hangs at the earliest instant, cannot change it.
local function bell_stays()
  local hung = bell_hung()
  if stood or not hung or hung < NOW or hung ~= earliest() then
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
