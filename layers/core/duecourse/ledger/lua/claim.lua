-- Leases due tasks: tenants with ripe work take turns, each a quantum. Lapsed leases are taken back first.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard and notifications, then: limit (tasks), lease ms where the queue has none of its own, max
--         bytes of records after the first, bytes of those that this claim has leased before, nonces (8 bytes for each
--         of limit), trigger (its letter in a record), how many begin at once: the others are claimed ahead; then of
--         each kind that is handed over: kind, target, how many it may have unbegun, lease ms of delivery; and of each
--         that is worked here, if not all are (modules/deliveries.lua)
-- RETURNS {now, bell_at, died, backlog, {tenant whose due set was not among KEYS...}, {stored id, record, ...}, lease
--         ms, priority (-1 for none), 1 where due tasks wait for the end of leases, {tenant whose turn is next...} or
--         {}, how many were put aside, {place of a record among those, its payload where that stands apart...}, due
--         schedules (modules/due_schedules.lua), nil where there are none, {target, how many tasks one event is to
--         have...}, how many lapsed leases were taken back, how many runs ended so, how many of those a target had
--         begun}, the last four left out where there are none; the record is "" of a task that is put off, for it
--         cannot be read
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local lease_ms = shard.LEASE or tonumber(ARGV[shard.FIRST + 1])
local NONCES, LEASE_END = ARGV[shard.FIRST + 4], layout.lease_end('', shard.NOW, ARGV[shard.FIRST + 5])
local AT_ONCE = ARGV[shard.FIRST + 6] + 0
local MOST_EXPIRED = 300 -- due tasks that one claim does not lease: an end costs more than a lease
local want, taken, useless = {}, 0, 0
call('ZREM', shard.LEASED, '') -- its first write in any case
local minute = pack('>I4', math.floor(shard.NOW / numbers.MINUTE))
if sub(shard.NUMBERS, 1, 4) ~= minute then
  require 'lines'
  lines.close(minute)
end
local lapsed, reclaimed, died, runs, at_target = leases.lapsed(limits.RECLAIM), 0, 0, 0, 0
if lapsed[1] then
  require 'lapses'
  reclaimed, died, runs, at_target = lapses.reclaim(lapsed, want, limits.RECLAIM_BYTES)
end
-- With tenants to declare it is asked again, and takes back the rest first.
local limit = #want == 0 and limits.room(tonumber(ARGV[shard.FIRST])) or 0

local waits = 0 -- how many their targets have no room for
places.give_places()
deliveries.read_kinds(shard.FIRST + 7)
deliveries.wake_waiting(limit, want)
choice.open(tonumber(ARGV[shard.FIRST + 3]), tonumber(ARGV[shard.FIRST + 2]))

-- Answers whether another round may have more.
local function take_turns()
  local turns, sids = rounds.gather(limit - taken, want)
  local round, cut = choice.choose(turns, sids, MOST_EXPIRED - useless)
  local not_leased, fence = rounds.leave_due(turns, sids)
  useless, waits = useless + not_leased, waits + #round.aside / 3
  choice.put_off(round.broken)
  deliveries.put_aside(round.aside)
  for i = 1, #round.gone, 2 do
    choice.expire(round.gone[i], round.gone[i + 1])
    died = died + 1
  end
  taken = taken + choice.lease(round, fence, NONCES, LEASE_END, AT_ONCE)
  local left = rounds.move_on(turns)
  return (#sids > 0 or left) and not cut and #want == 0
end

while taken < limit and useless < MOST_EXPIRED and take_turns() do end
local handed, payloads = choice.write_leases(values.text_of(shard.NOW + lease_ms))
deliveries.count()
deliveries.stop_waking()
numbers.write()

if shard.ended or shard.occurred then
  require 'announce'
  announce.ends(shard.ended)
end
local at, left, front = bell.hang_after_claim(), 0, {}
if limit <= 0 and not shard.PAUSED then -- no round has looked
  local fires = tonumber(call('ZSCORE', shard.HEADS, rounds.SCHEDULES) or nil)
  rounds.schedules_due = fires and fires <= shard.NOW
end
local waits_for_leases = bell.full() or (shard.TENANT_MAX and call('ZCARD', shard.PARKED) > 0)
if not bell.is_throttled() then
  left, front = rounds.backlog()
  left = left + deliveries.more_aside()
end
local schedules = false
if rounds.schedules_due then
  require 'due_schedules'
  schedules = due_schedules.read(want)
end
local fitting = deliveries.fitting() or (reclaimed > 0 and {} or nil) -- what is nil ends an answer
return {
  shard.NOW, at, died, left, want, handed, lease_ms, shard.PRIORITY, waits_for_leases and 1 or 0, front, waits,
  payloads, schedules, fitting, reclaimed > 0 and reclaimed or nil, runs > 0 and runs or nil,
  at_target > 0 and at_target or nil,
}
