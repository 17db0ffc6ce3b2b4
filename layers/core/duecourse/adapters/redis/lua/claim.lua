-- Leases due tasks: tenants with ripe work take turns, each a quantum. Lapsed leases are taken back first.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard and endings, then: limit (tasks), lease ms where the queue has none of its own, max bytes of
--         records after the first, bytes of those that this claim has leased before, nonces (8 bytes for each of
--         limit), trigger (its letter in a record), then of each kind that is handed over: kind, target, how many it
--         may have unbegun, lease ms of delivery
-- RETURNS {now, bell_at, died, backlog, {tenant whose due set was not among KEYS...}, {stored id, record, ...}, lease
--         ms, priority (-1 for none), 1 where due tasks wait for the end of leases, {tenant whose turn is next...} or
--         {}, how many were put aside, {place of a record among those, its payload where that stands apart...}}; the
--         record is "" of a task that is put off, for it cannot be read
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local lease_ms, max_bytes = handout.LEASE or tonumber(ARGV[shard.FIRST + 1]), tonumber(ARGV[shard.FIRST + 2])
local NONCES, LEASE_END = ARGV[shard.FIRST + 4], handout.lease_end('', ARGV[shard.FIRST + 5])
local MOST_EXPIRED = 300 -- due tasks that one claim does not lease: an end costs more than a lease
local useless = 0 -- how many were due and are not leased

local want, bytes, taken = {}, tonumber(ARGV[shard.FIRST + 3]), 0
local skipped, passed, PASS = {}, 0, 2000 -- tenant -> how many records of a later version it has first; all of them
local handed, unread, late = {}, {}, {} -- {stored id, record...}, {stored id...}, due time -> how many
local payloads = {} -- that stand apart: {place among the pairs of `handed`, payload...}
call('ZREM', shard.LEASED, '') -- its first write in any case
local _, died = endings.reclaim(handout.RECLAIM, want, handout.RECLAIM_BYTES)
-- With tenants to declare it is asked again, and takes back the rest first.
local limit = #want == 0 and handout.room(tonumber(ARGV[shard.FIRST])) or 0

local waits = 0 -- how many their targets have no room for
places.give_places()
-- Before version 5 a task is handed over under a lease like any other.
handover.handed_kinds(shard.LAYOUT < 5 and #ARGV + 1 or shard.FIRST + 6)
handover.wake_waiting(limit, want)

-- Answers whether another round may have more.
local function take_turns()
  rounds.notice()
  local turns, sids = rounds.gather(limit - taken, want, skipped)
  local before, newer = #handed, {}
  local runs, gone, broken, aside, to, used, cut =
    choice.choose(turns, sids, handed, payloads, late, bytes, max_bytes, MOST_EXPIRED - useless, newer)
  local times, stood = choice.due_times(newer, 1), choice.due_times(aside, 3)
  bytes, useless, passed = used, useless + rounds.leave_due(turns, sids) - #newer, passed + #newer
  choice.pass_over(newer, times, skipped)
  rounds.bar(turns)
  choice.put_off(broken)
  handover.put_aside(aside, stood)
  waits = waits + #aside / 3
  for _, sid in ipairs(broken) do
    unread[#unread + 1] = sid
  end
  for i = 1, #gone, 2 do
    choice.expire(gone[i], gone[i + 1])
    died = died + 1
  end
  taken = taken + choice.lease(runs, to, handed, before, NONCES, LEASE_END)
  local left = rounds.move_on(turns)
  return (#sids > 0 or left) and not cut and #want == 0
end

while taken < limit and useless < MOST_EXPIRED and passed < PASS and take_turns() do end
choice.write_leases(handed, values.text_of(shard.NOW + lease_ms))
handout.log_lateness(late)
handover.count_deliveries()
handover.stop_waking()

local at, left, front = bell.hang_after_claim(), 0, {}
local waits_for_leases = bell.full() or (shard.TENANT_MAX and call('ZCARD', shard.PARKED) > 0)
if not bell.is_throttled() then
  left, front = rounds.backlog()
end
for _, sid in ipairs(unread) do
  values.push(handed, sid, '')
end
return {
  shard.NOW, at, died, left, want, handed, lease_ms, handout.PRIORITY, waits_for_leases and 1 or 0, front, waits,
  payloads,
}
