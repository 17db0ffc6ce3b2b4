-- Leases due tasks: tenants with ripe work take turns, each a quantum. Lapsed leases are taken back first.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's and ending's, then: limit (tasks), lease ms where the queue has none of its own, max bytes of records
--         after the first, bytes of those that this claim has leased before, nonces (8 bytes for each of limit), door (its letter in a
--         record), then of each kind that is handed over: kind, target, how many it may have unbegun, lease ms of delivery
-- RETURNS {now, bell_at, died, backlog, {tenant whose due set was not among KEYS...}, {stored id, record, ...}, lease ms,
--         priority (-1 for none), 1 where due tasks wait for the end of leases, {tenant whose turn is next...} or {}, how
--         many were put aside}; the record is "" of a task that is put off, for it cannot be read
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

--include prelude fresh record history lease ending handout turns handover chosen

local lease_ms, max_bytes = LEASE_OF_QUEUE or tonumber(ARGV[FIRST + 1]), tonumber(ARGV[FIRST + 2])
local NONCES, LEASE_END = ARGV[FIRST + 4], lease_end('', ARGV[FIRST + 5])
local BURY = 300 -- due tasks that one claim does not lease: an end costs more than a lease
local useless = 0 -- how many were due and are not leased

local want, bytes, taken = {}, tonumber(ARGV[FIRST + 3]), 0
local skipped, passed, PASS = {}, 0, 2000 -- tenant -> how many records of a later version it has first; all of them
local handed, unread, late = {}, {}, {} -- {stored id, record...}, {stored id...}, due time -> how many
call('ZREM', LEASED, '') -- its first write in any case
local _, died = reclaim(RECLAIM, want, RECLAIM_BYTES)
local limit = #want == 0 and room(tonumber(ARGV[FIRST])) or 0 -- else it is asked again, and takes back the rest first

local waits = 0 -- how many their targets have no room for
give_places()
handed_kinds(FIRST + 6)
wake_waiting(limit, want)

-- Answers whether another round may have more.
local function take_turns()
  notice()
  local turns, sids = gather(limit - taken, want, skipped)
  local before, newer = #handed, {}
  local runs, gone, broken, aside, to, used, cut =
    choose(turns, sids, handed, late, bytes, max_bytes, BURY - useless, newer)
  local times, stood = due_times(newer, 1), due_times(aside, 3)
  bytes, useless, passed = used, useless + leave_due(turns, sids) - #newer, passed + #newer
  pass_over(newer, times, skipped)
  bar(turns)
  put_off(broken)
  put_aside(aside, stood)
  waits = waits + #aside / 3
  for _, sid in ipairs(broken) do
    unread[#unread + 1] = sid
  end
  for i = 1, #gone, 2 do
    bury(gone[i], gone[i + 1])
    died = died + 1
  end
  taken = taken + lease(runs, to, handed, before, NONCES, LEASE_END)
  local left = move_on(turns)
  return (#sids > 0 or left) and not cut and #want == 0
end

while taken < limit and useless < BURY and passed < PASS and take_turns() do end
write_leases(handed, text_of(NOW + lease_ms))
log_lateness(late)
count_deliveries()
stop_waking()

WAS_FULL, woken = false, false -- who claims and leaves something due comes again
local at, left, front, held = hang(followed), 0, {}, full() or (TENANT_MAX and call('ZCARD', PARKED) > 0)
if not (PAUSED or full() or opens_at() > NOW) then
  left, front = backlog()
end
for _, sid in ipairs(unread) do
  push(handed, sid, '')
end
return { NOW, at, died, left, want, handed, lease_ms, PRIORITY, held and 1 or 0, front, waits }
