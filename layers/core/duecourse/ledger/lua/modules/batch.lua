-- What an add writes, gathered and written in one go.
--
-- ARGV    add.lua's

local CREATED = 1 -- the replies
local KEPT = 2
local REPLACED = 3
local DEBOUNCED = 4
local APART = 97 -- a, of a mode

local fence -- of the task before
local written, scheduled, grouped
local soonest -- of each tenant
local payloads -- those that stand apart, of the whole batch
local apart -- how many of those are yet to be written
local added -- how many tasks are yet to be counted

local function empty()
  written, scheduled, grouped, apart = {}, {}, {}, 0
end

function batch.begin()
  soonest = {}
  payloads = {}
  added = 0
  empty()
end

-- Draws a fence for each of so many tasks.
function batch.draw_fences(count)
  fence = shard.next_fence(count) - count
end

function batch.due_and_deadline(at)
  local due, deadline = values.instant(ARGV[at + 2], shard.NOW), ARGV[at + 3]
  return due, deadline == '' and 0 or values.instant(deadline, due)
end

-- A fresh record of the task at this place in ARGV; `how` says how it came (0 created, 1 replaced ...), as `flags`
-- keeps it.
function batch.new_record(at, how, due, deadline, created)
  fence = fence + 1
  if how ~= DEBOUNCED - 1 then
    added = added + 1
  end
  local rest, flags = ARGV[at + 6], how * fields.CAME + shard.COUNTED
  if byte(ARGV[at + 3], 1) == 43 then
    flags = flags + fields.COUNTS
  end
  if #rest > fields.INSIDE then
    local field, payload, flag
    rest, field, payload, flag = bodies.part(ARGV[at], rest, fence)
    if field then
      payloads[field], apart, flags = payload, apart + 1, flags + flag
      values.push(written, field, payload)
    end
  end
  return layout.new_record(flags, due, created, fence, deadline, rest)
end

-- Puts a scheduled task's record on the batch's list.
function batch.put(sid, at, due, data)
  local tenant = tenants.tenant_of(sid)
  local members, first = scheduled[tenant], soonest[tenant]
  if not members then
    members = {}
    scheduled[tenant] = members
  end
  if not first or due < first then
    soonest[tenant] = due
  end
  values.push(written, sid, data)
  values.push(members, values.text_of(due), sid)
  if ARGV[at + 5] ~= '' then
    values.push(grouped, '0', layout.group_member(sid, ARGV[at + 5]))
  end
  return data
end

-- Adds the payload of a record that is answered to `found`, with its place, where it stands apart. At once, for a later
-- task of the batch may replace the record.
function batch.add_body(found, place, sid, data)
  local field = bodies.of(sid, data)
  if field then
    values.push(found, place, payloads[field] or call('HGET', shard.TASKS, field) or '')
  end
end

-- Answers when the first of each tenant is due that this call has scheduled.
function batch.flush()
  values.in_pieces('HSET', shard.TASKS, written)
  bodies.count(apart)
  for tenant, members in pairs(scheduled) do
    values.in_pieces('ZADD', shard.DUE[tenant], members)
  end
  values.in_pieces('ZADD', shard.GROUPS, grouped)
  if added > 0 then
    shard.entries, added = shard.entries .. pack(numbers.ENTRY, numbers.ADDED, added), 0
  end
  empty()
  return soonest
end

-- Whether the group of the task at this place has one that it must be apart from, those of this batch among them.
function batch.has_neighbour(at)
  local first, last = match(ARGV[at + 1], '^a(.-)%z(.*)$')
  if #grouped > 0 then
    batch.flush()
  end
  local group = ARGV[at + 5]
  local from, to = '[' .. layout.group_member(first, group), '[' .. layout.group_member(last, group)
  return #call('ZRANGEBYLEX', shard.GROUPS, from, to, 'LIMIT', 0, 1) > 0
end
