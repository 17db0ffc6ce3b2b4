-- One bounded step of upkeep: takes back lapsed leases, forgets what ended long ago and entries of what waits no more,
-- hangs the bell.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard and notifications, then: retention ms, where the queue has none of its own; how long the dead
--         are kept (ms, "" for good); the deployment's quotas (modules/settings.lua), or nothing, which leaves them
-- RETURNS {now, bell_at, reclaimed, died, pruned, 1 if a bound was reached, {tenant whose due set was not among
--         KEYS...}, for how long it has had neither tasks nor settings (ms, -1 where it has), the version of the
--         queue's settings ("" for none), until when leases are spared that lapsed unattended (0 for none), how many
--         runs ended without a settle, how many of those a target had begun}

require 'notifications'
local BOUND, A_MINUTE = 500, 60000
local want = {}
local own = call('HMGET', shard.META, 'retention', 'waiting', 'revision', 'unpark')
local retention = tonumber(own[1] or ARGV[shard.FIRST])
local dead_retention = tonumber(ARGV[shard.FIRST + 1])
local lapsed, reclaimed, died, more, runs, at_target = leases.lapsed(BOUND), 0, 0, false, 0, 0
if lapsed[1] then
  require 'lapses'
  reclaimed, died, runs, at_target, more = lapses.reclaim(lapsed, want, record.BYTES / 2)
  more = more or #lapsed == 2 * BOUND
end

-- Forgets the tasks in `place` that ended before this instant. Answers how many.
local function prune(place, before)
  local sids = call('ZRANGEBYSCORE', place, '-inf', before, 'LIMIT', 0, BOUND)
  local pruned = 0
  while pruned < #sids and shard.weight < record.BYTES do
    local some = { unpack(sids, pruned + 1, math.min(pruned + record.piece(pruned), #sids)) }
    local members, names, records = {}, {}, call('HMGET', shard.TASKS, unpack(some))
    call('ZREM', place, unpack(some))
    for i, data in ipairs(records) do
      -- Not opened: to fold what stands behind a record into it takes most of the time, and is for nothing here.
      if data then
        shard.weight = shard.weight + #data
        members[#members + 1] = record.member_of_group(some[i], data)
        names[#names + 1] = bodies.of(some[i], data)
      end
    end
    call('HDEL', shard.TASKS, unpack(some))
    values.in_pieces('ZREM', shard.GROUPS, members)
    bodies.drop(names)
    tenant_bytes.drop(some, records)
    pruned = pruned + #some
  end
  more = more or pruned == BOUND or pruned < #sids
  return pruned
end

-- Of the dead none is forgotten before a sweep has looked for such for as long: they were kept for good, once.
local function prune_dead(may_forget)
  if not dead_retention or call('ZCARD', shard.DEAD) == 0 then
    return 0
  end
  local since, before = tonumber(call('HGET', shard.META, 'dead_swept') or nil), shard.NOW - dead_retention
  if not since then
    call('ZREM', shard.LEASED, '') -- this may be its first write, and memory short
    call('HSET', shard.META, 'dead_swept', shard.NOW_TEXT)
  end
  return may_forget and (since or shard.NOW) <= before and prune(shard.DEAD, before) or 0
end

local quotas_given = ARGV[shard.FIRST + 2]
if quotas_given then
  settings.set_defaults(quotas_given)
end
local spared = tonumber(call('HGET', shard.META, 'spared') or nil)
if spared and (spared <= shard.NOW or spared > shard.NOW + A_MINUTE) then -- or the clock was put back
  if not lapsed[1] then
    call('HDEL', shard.META, 'spared')
  end
  spared = nil
end
local may_forget = put_back.may_forget()
local pruned = (may_forget and prune(shard.DONE, shard.NOW - retention) or 0) + prune_dead(may_forget)
local idle = idleness.idle_ms()
if own[4] then
  call('ZREM', shard.LEASED, '') -- this may be its first write, and memory short
  more = settings.wake_parked() or more
end
quotas.forget_adds()
if shard.ended or shard.occurred then
  require 'announce'
  announce.ends(shard.ended)
end
if shard.AWAITED and tonumber(shard.AWAITED) <= shard.NOW then
  call('HDEL', shard.META, 'awaited')
end
local minute = pack('>I4', math.floor(shard.NOW / numbers.MINUTE))
if sub(shard.NUMBERS, 1, 4) ~= minute then
  require 'lines'
  lines.close(minute)
end
numbers.write()
local was_put_back = put_back.watch()
local left = review.step(was_put_back)
misplaced.finish(want)
more = places.forget_strays(own[2], want) or left or more
return {
  shard.NOW, bell.hang(false), reclaimed, died, pruned, more and 1 or 0, want, idle, own[3] or '', spared or 0, runs,
  at_target,
}
