-- One call on one shard: its keys and arguments, the time, the settings, and what the call has come to so far.
--
-- KEYS    1 tasks   hash, stored id -> packed record (its layout: ledger/layout.py); "<stored id>+" is a
--                   successor, "<stored id>=<number>" a payload that stands apart
--         2 heads   zset, tenant -> its earliest due time, of tenants that are neither in the ring nor parked; "*" is
--                   the tenant of schedules, whose head never joins the ring
--         3 ring    zset, tenant with ripe work -> its turn
--         4 leased  zset, stored id -> end of the lease
--         5 done    zset, stored id -> when it was done or cancelled
--         6 dead    zset, stored id -> when it died
--         7 groups  zset, all scores 0, "<tenant>/<group>\0<stored id>"; where schedules
--                   are counted, of each "*/<tenant>\0<stored id>"
--         8 meta    hash: fence, running:<tenant> while any is, clock and bell_at (travel), successors: how many wait,
--                   while any does, logged: the sum of `log`, late_slot: the newest in `late`,
--                   numbers: those of the current minute (modules/numbers.lua); shards: how many the
--                   queue has where that is or was not 1, or "<from>><to>#<who>" while they are changed; how the whole
--                   queue is set, where it is: paused, max_running, rate_count, rate_per (ms), tenant_max_running,
--                   priority, retention, lease (ms); revision: which version of these settings that is, in a queue of
--                   several shards; set_by: the mark of the newest change by a caller; unpark: how far a pass is that
--                   wakes parked tenants, while one is under way; clear: how far wrong counts are forgotten, likewise
--                   (modules/tenant_bytes.lua); defaulted: 1 where max_running is a default, 2 where tenant_max_running
--                   is one too; dead_swept: when a sweep first looked for old dead tasks; put_back, forgets:
--                   modules/put_back.lua; spared: the end of leases that lapsed unattended and got some seconds more,
--                   until a sweep finds them gone, lapsed: "<slot>:<runs>:<of those at a target>" of each slot of the
--                   last hour in which runs ended without a settle (modules/lapses.lua); idle: "<fence>:<since>" of a
--                   shard without tasks or settings, leave: how far it is forgotten, leaving where it is being
--                   forgotten; out:<target> how many were handed over and are not begun, while any is; most:<target>
--                   how many may be, while tasks wait for that (0 of kind:<kind>, for whoever has it); wake: 1 while a
--                   claim may hand over what waits; waiting: the entry of `waiting` after which a sweep looks on;
--                   busy:<target>, busy:kind:<kind> until when a function that is handed tasks counts as busy,
--                   fits:<target> "<how many>:<since>", what it may have while that is fewer (modules/busy.lua);
--                   each:<target> how many tasks one event of it is to have, while it has no time for ten; layout: the
--                   version of the records, there since the first fence; bodies: how many payloads stand apart, while
--                   any does; rewrite, misplaced: modules/review.lua; tenant_max_pending, tenant_max_bytes,
--                   tenant_adds_per_minute, tenant_max_schedules, default_quotas: those of the deployment
--                   (modules/settings.lua), and quotas: a letter of each that is set (p, b, a, s), while any is;
--                   bytes:<tenant>: modules/tenant_bytes.lua; adds:<tenant>, adds: modules/quotas.lua; awaited: until
--                   when somebody waits for ends of tasks (ms)
--         9 bell    string with a TTL: the instant at which it goes
--         10 parked zset, tenant that runs as many tasks as it may -> its earliest due time
--         11 log    zset, "<first fence>:<how many>" of each claim within the rate's window -> claimed_at
--         12 late   hash, "<slot>:<bucket>" -> how many began that late (ledger/queue.py)
--         13 waiting zset, all scores 0, "<target>\0<due, 13 digits><until when it is put aside, 13 digits>\0<id>" of
--                   due tasks whose target has as many as it may that it has not begun (<id>: the stored one); and
--                   "\0<id>\0<target>" of those that it has not begun, for a record that is cut off does not tell whose
--                   place it has
--         14 history hash: minutes, hours, days, the lines of each kind (ledger/queue_history.py)
--         15...     due:<tenant> zset, stored id -> due_at (of a notification, `due_score`), of each tenant that the
--                   verb is about. A schedule is a record as a task's, "*/<tenant>/<id>", in due:* by when it next
--                   fires (fields.NEVER: it does not); of a group only for its shard's sake (modules/progress.lua)
-- ARGV    1 the clock: "<ms>" the server's, and the instant until which the call is valid; "" the server's, of a call
--         that changes nothing; "=<ms>" this time in place of the server's
--         2 the head channel   3 how many shards the queue has
--         then the verb's own
-- RETURNS a negative number alone: -8 the shard is not registered, -9 an override where the clock does not travel,
--         -10 the queue has another number of shards, -20 the records are of an earlier version than this code, -21 of
--         a later one; or the error LATE, where the call is not valid any more
--
-- Where the store is in this process, a module is made once, and a verb runs many times. So whatever depends on the
-- call is set in a module's `begin`, which runs before the verb. What several modules share of it is a field of this
-- one:
--
-- TASKS ... HISTORY                 the keys, as above
-- DUE, TENANT                       tenant -> its due set; the last of the tenants
-- FIRST                             the place of the verb's own arguments
-- HEAD_CHANNEL, COUNT, TRAVEL       the arguments 2 and 3; whether the clock is overridden
-- NOW, NOW_TEXT                     the time in epoch milliseconds, as a number and as text
-- PAUSED, MAX_RUNNING, TENANT_MAX,  how the queue is set: limits are this shard's part; PRIORITY is -1 where it is not set
-- RATE, PER, LEASE, PRIORITY
-- LOGGED, LEAVING, WAKE, QUOTAS,    as in meta
-- AWAITED, NUMBERS
-- FENCE                             the newest fence, 0 before the first
-- COUNTED                           the flag of a record that is added now, where its bytes are counted, else 0
-- weight                            bytes of the records that were read, as far as they were opened
-- woken                             whether a tenant was that waited for a place of its own
-- ended                             {anything, stored id...} of tasks that ended, where somebody waits
-- occurred                          {stored id, status...} of occurrences of schedules that ended, or live again
-- notified                          whether a notification was added: it is due now
-- entries                           numbers that are not written yet (modules/numbers.lua)
-- behind                            whether another server has given leases that this one has no record of

-- This shard's part of a limit of the queue: one more for the first ones where it does not divide.
function shard.part_of(whole)
  whole = tonumber(whole)
  local count = tonumber(shard.COUNT) or 1
  if count == 1 or not whole then
    return whole
  end
  local number = tonumber(match(shard.TASKS, '/(%d+)}:tasks$'))
  return math.floor(whole / count) + (number < whole % count and 1 or 0)
end

-- Answers how many shards the queue has, where that is registered, whether the clock travels, and the version of the
-- records. What is no number, for another program has written it, is as if it were not there: so it is to who shows the
-- settings.
function shard.read_meta()
  local meta = call('HMGET', shard.META, 'shards', 'clock', 'paused', 'max_running', 'tenant_max_running', 'rate_count',
    'rate_per', 'logged', 'leaving', 'wake', 'layout', 'fence', 'quotas', 'awaited', 'numbers',
    'lease', 'priority')
  shard.AWAITED, shard.NUMBERS = meta[14], meta[15] or ''
  shard.LEASE, shard.PRIORITY = tonumber(meta[16] or nil), tonumber(meta[17] or -1)
  shard.PAUSED, shard.LEAVING, shard.WAKE, shard.QUOTAS = meta[3], meta[9], meta[10], meta[13]
  shard.MAX_RUNNING, shard.TENANT_MAX = meta[4] and shard.part_of(meta[4]), meta[5] and shard.part_of(meta[5])
  shard.FENCE = tonumber(meta[12] or nil) or 0
  shard.PER, shard.LOGGED = tonumber(meta[7] or nil), tonumber(meta[8] or nil) or 0
  shard.RATE = shard.PER and meta[6] and shard.part_of(meta[6])
  return meta[1], meta[2], meta[11]
end

local function name_keys()
  local keys, due = KEYS, {}
  shard.TASKS, shard.HEADS, shard.RING, shard.LEASED, shard.DONE, shard.DEAD, shard.GROUPS, shard.META, shard.BELL,
    shard.PARKED, shard.LOG, shard.LATE, shard.WAITING, shard.HISTORY = unpack(keys, 1, 14)
  local name_at, tenant = #keys[1] - #'tasks' + #'due:' + 1, nil
  for i = 15, #keys do
    tenant = sub(keys[i], name_at)
    due[tenant] = keys[i]
  end
  shard.DUE, shard.TENANT = due, tenant
end

function shard.begin()
  name_keys()
  shard.HEAD_CHANNEL, shard.COUNT, shard.FIRST = ARGV[2], ARGV[3], 4
  shard.TRAVEL = ARGV[1] >= '='
  local count, clock, version = shard.read_meta()
  if (count or shard.COUNT) ~= shard.COUNT then
    return -10
  elseif shard.TRAVEL and clock ~= 'travel' then
    return -9
  elseif version ~= fields.VERSION_TEXT and (version or shard.FENCE > 0) then -- a shard of 0.1.0 names no version
    return (tonumber(version) or 0) > fields.VERSION and -21 or -20
  end
  shard.NOW = values.now(ARGV[1]) -- once, for it moves while a script runs
  shard.NOW_TEXT = values.text_of(shard.NOW)
  if ARGV[1] < shard.NOW_TEXT and ARGV[1] ~= '' then -- as texts, of 13 digits until 2286
    return redis.error_reply(values.LATE)
  end
  shard.weight, shard.woken, shard.notified, shard.ended, shard.COUNTED = 0, false, false, false, 0
  shard.occurred, shard.behind, shard.entries = false, false, ''
end

-- A shard gets the version of its records with its first fence, and once more where another program deleted its meta.
function shard.draw_fences(n)
  if shard.FENCE == 0 then
    call('HSET', shard.META, 'layout', fields.VERSION_TEXT)
  end
  shard.FENCE = shard.FENCE + fences.step(shard.FENCE, shard.NOW, n)
  return string.format('%d', shard.FENCE) -- the last, to be written as `fence`
end

function shard.next_fence(n)
  call('HSET', shard.META, 'fence', shard.draw_fences(n or 1))
  return shard.FENCE
end
