-- Schedules tasks, each as its mode says where its id stands already.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: registered (1 once the caller has registered the shard, else 0), echo (1 to answer
--         the records), unique ("" or "<tenant>/<group>"), since (of unique a generation; else an instant, 0 for none:
--         a request that is sent again began then, and what was added or debounced since is kept)
--         then for each task: stored id, mode (k keep, r replace, j reject, d debounce, or a<stored id>\0<stored id>:
--         apart from what its group has between those, which is kept), due ("+ms" from now, or epoch ms), deadline
--         ("" none, "+ms" from due, or epoch ms), max_wait ms, group, rest of the record
-- RETURNS {now, bell_at, {reply...}, {record...} where echo, {place, payload...} of those that have theirs apart, for
--         how many ms the tenant is to wait with adds that are over its quota, where any are}
--         a reply is 1 created, 2 kept, 3 replaced, 4 debounced, -2 scheduled, -3 leased, -6 dead, -11 it would be
--         pushed past its deadline, -12 to -14 over a quota of its tenant (of pending tasks, bytes, adds), -15 to -17
--         beyond the whole of one, -19 (mode j) something was added since then; or -7 alone, and nothing is added,
--         where a task of the group `unique` is live or newer than `since`
--         there are fewer replies than tasks where so much stands in their places that its bytes ran out: the others
--         are not added

require 'fast_add' -- tried first, and most often that is all: its `begin` may answer for the script (lua_linker.py)

local ITEM = 7
local BYTES, PIECE = 2000000, 16 -- what it reads of what stands there, and how many at a time
local echo, unique = ARGV[shard.FIRST + 1] == '1', ARGV[shard.FIRST + 2]
local first = shard.FIRST + 4
local count = (#ARGV - first + 1) / ITEM
local replies, records, payloads = {}, {}, {}
local met = false -- whether any id of the batch did

local function make_duplicates()
  if not duplicates then
    require 'duplicates' -- here, for to make functions is what a script spends its time on
  end
end

local function read(data)
  make_duplicates()
  return duplicates.open(data)
end

if unique ~= '' then
  local since = tonumber(ARGV[shard.FIRST + 3])
  for _, member in ipairs(call('ZRANGEBYLEX', shard.GROUPS, '[' .. unique .. '\0', '(' .. unique .. '\1')) do
    local r = read(call('HGET', shard.TASKS, match(member, '%z(.*)$')))
    if r and (r.status == fields.SCHEDULED or r.status == fields.LEASE or r.generation > since) then
      return -7
    end
  end
end

-- What stands there is all read before any is changed: else a part of what this adds would be added. Of a batch that is
-- to be added as one, all; else as much as a script may read.
local sids, found, olds, bytes = {}, {}, {}, 0
for i = 1, count do
  sids[i] = ARGV[first + (i - 1) * ITEM]
end
for i = 1, count, PIECE do
  if bytes >= BYTES and unique == '' then
    count = i - 1
    break
  end
  local last = math.min(i + PIECE - 1, count)
  for j, data in ipairs(call('HMGET', shard.TASKS, unpack(sids, i, last))) do
    if data then
      found[i + j - 1], bytes = data, bytes + #data
      olds[i + j - 1] = read(data) or error('the record of ' .. sids[i + j - 1] .. ' cannot be read')
    end
  end
end

local wait = 0 -- the longest that a quota asks for
if shard.QUOTAS then
  make_duplicates()
end
-- A shard that never drew a fence is not registered yet, and one that is leaving may not be: its tasks would not be
-- found.
local registered, is_new = ARGV[shard.FIRST] ~= '0', shard.FENCE == 0
if (shard.LEAVING or is_new) and not registered then
  return -8
end
if shard.QUOTAS and unique ~= '' then
  local refused, more = duplicates.refusal_of_all(first, ITEM, olds)
  if refused then
    for i = 1, count do
      replies[i] = refused
    end
    return { shard.NOW, bell.hung() or 0, replies, {}, {}, more }
  end
end
batch.draw_fences(count)
if shard.LEAVING then
  call('HDEL', shard.META, 'leaving')
end
if is_new and shard.COUNT ~= '1' then
  call('HSET', shard.META, 'shards', shard.COUNT)
end

local seen = {}
for i = 1, count do
  local sid, at = sids[i], first + (i - 1) * ITEM
  local data, old = found[i], olds[i]
  if seen[sid] then -- twice in one batch: the second sees what the first did
    batch.flush()
    data = call('HGET', shard.TASKS, sid)
    old = read(data)
  end
  seen[sid] = true
  if not data and byte(ARGV[at + 1]) == batch.APART and batch.has_neighbour(at) then
    replies[i], records[i] = batch.KEPT, ''
  elseif data then
    met = true
    local more
    replies[i], records[i], more = duplicates.add(sid, at, data, old)
    wait = math.max(wait, more or 0)
  else
    local refused, more
    if shard.QUOTAS then
      refused, more = duplicates.refusal(sid, at)
    end
    if refused then
      replies[i], records[i], wait = refused, '', math.max(wait, more)
    else
      local due, deadline = batch.due_and_deadline(at)
      local made = batch.new_record(at, batch.CREATED - 1, due, deadline, shard.NOW)
      replies[i], records[i] = batch.CREATED, batch.put(sid, at, due, made)
    end
  end
  if shard.QUOTAS then
    duplicates.count_bytes(sid, at, replies[i])
  end
  local flags = echo and byte(records[i], 2)
  if flags and flags >= fields.APART then
    batch.add_body(payloads, i, sid, records[i])
  end
end
local soonest = batch.flush()
if shard.occurred then
  require 'announce'
  announce.ends()
end

local minute = pack('>I4', math.floor(shard.NOW / numbers.MINUTE))
if sub(shard.NUMBERS, 1, 4) ~= minute then
  require 'lines'
  lines.close(minute)
end
numbers.write()

-- What is only added, and later than a bell that hangs at the earliest instant, cannot change it.
local bell_at = bell.hung()
local function bell_stays()
  if met or not bell_at or bell_at < shard.NOW then
    return false
  end
  for tenant, due in pairs(soonest) do
    local head = tonumber(due > bell_at and call('ZSCORE', shard.HEADS, tenant) or nil)
    if not head or head > due then
      return false
    end
  end
  return bell_at == bell.earliest()
end

if not bell_stays() then
  local made_due = false
  for tenant, due in pairs(soonest) do
    tenants.rehead(tenant)
    made_due = made_due or due <= shard.NOW
  end
  bell_at = bell.hang(made_due, bell_at or 0)
end
return { shard.NOW, bell_at, replies, echo and records or {}, payloads, wait > 0 and wait or nil }
