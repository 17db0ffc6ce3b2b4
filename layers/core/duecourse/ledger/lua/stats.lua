-- One shard in numbers: all are counts that Redis keeps. It writes nothing.
--
-- KEYS    as in modules/shard.lua, with the due set of schedules alone
-- ARGV    fields of meta
-- RETURNS {now, tasks (with successors, without schedules), leased, done, dead, the heads' first entry, that of the
--         parked, the tenants at both ends of the ring, when the bell goes (nil where none hangs), the
--         fields' values, when the longest due of those that are put aside was due (nil for none, or none among the
--         first), schedules, when the first of them fires (nil for none)}

local TASKS, HEADS, RING, LEASED, DONE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local DEAD, META, BELL, PARKED = KEYS[6], KEYS[8], KEYS[9], KEYS[10]
local WAITING, SCHEDULES = KEYS[13], KEYS[15]
local MOST_TARGETS = 64
local MOST_LOOKS, MOST_BYTES = 200, 2000000 -- at what waits
local bytes = 0 -- of the records that were read
local FRONT, BACK = 700, 300 -- tenants of the ring whose tasks are to be looked at

-- Whether a task waits still that was put aside: it is scheduled, and has been due since then.
local function waits(sid, due)
  local data = call('HGET', TASKS, sid)
  bytes = bytes + #(data or '')
  return data and #data >= fields.SMALLEST and byte(data, -1) == fields.SCHEDULED
    and unpack_struct('>I6', data, fields.DUE_AT) == due
end

-- When the longest due of what waits was due. The first of each target's is that; entries of tasks that wait no more
-- stand there until a sweep has forgotten them.
local function oldest_waiting()
  local oldest, from, targets, looks = nil, '[\1', 0, 0 -- before it are deliveries, not what waits
  while targets < MOST_TARGETS and looks < MOST_LOOKS and bytes < MOST_BYTES do
    local member = call('ZRANGEBYLEX', WAITING, from, '+', 'LIMIT', '0', '1')[1]
    if not member then
      break
    end
    local target, due, sid = match(member, '^(%Z*)%z(%d%d%d%d%d%d%d%d%d%d%d%d%d)%d+%z(.*)$')
    looks, from = looks + 1, '(' .. member
    if target and waits(sid, tonumber(due)) then
      oldest, from, targets = math.min(oldest or math.huge, tonumber(due)), '(' .. target .. '\1', targets + 1
    end
  end
  return oldest and string.format('%d', oldest)
end

-- The heads' first entry that is no schedules'.
local function first_head()
  local heads = call('ZRANGE', HEADS, 0, 1, 'WITHSCORES')
  return heads[1] == '*' and { heads[3], heads[4] } or { heads[1], heads[2] }
end

-- Those whose turn is next have waited longest. Those who had theirs and have more due stand at the end.
local function ends_of_ring()
  local tenants = call('ZRANGE', RING, 0, FRONT - 1)
  local rest = call('ZCARD', RING) - #tenants
  if rest > 0 then
    for _, tenant in ipairs(call('ZRANGE', RING, -math.min(rest, BACK), -1)) do
      tenants[#tenants + 1] = tenant
    end
  end
  return tenants
end

local schedules, fires = call('ZCARD', SCHEDULES), call('ZRANGE', SCHEDULES, 0, 0, 'WITHSCORES')[2]
return {
  values.now(''),
  call('HLEN', TASKS) - schedules, call('ZCARD', LEASED), call('ZCARD', DONE), call('ZCARD', DEAD),
  first_head(), call('ZRANGE', PARKED, 0, 0, 'WITHSCORES'), ends_of_ring(),
  call('GET', BELL), call('HMGET', META, unpack(ARGV)),
  oldest_waiting() or false, schedules, tonumber(fires or nil) ~= fields.NEVER and fires or false,
}
