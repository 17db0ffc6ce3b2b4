-- Schedules dead tasks, with all their attempts.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then: by whom, then for each task: stored id, how many ms from now it is due, how many after
--         that it is given up (0 never)
-- RETURNS {now, bell_at, {reply...}}; a reply is 0 replayed, -1 absent, -2 scheduled, -3 leased, -4 done, -5 cancelled;
--         there are fewer than tasks where its bytes ran out before the last

--include prelude fresh record history lease

local REFUSALS = { [SCHEDULED] = -2, [LEASE] = -3, [FINISHED] = -4, [CANCELLED] = -5 }
local replies, changed, fresh = {}, false, false

local function replay(sid, r, due, life)
  note(r, REPLAYED, ARGV[FIRST], r.due, due)
  r.status, r.attempt, r.deadline, r.due = SCHEDULED, 1, life > 0 and due + life or 0, due
  r.flags = bit.bor(r.flags, COUNTS)
  call('ZREM', DEAD, sid)
  call('ZADD', DUE[tenant_of(sid)], due_score(sid, due), sid)
  call('HSET', TASKS, sid, close(r))
  changed, fresh = true, fresh or due <= NOW
  return 0
end

for at = FIRST + 1, #ARGV, 3 do
  if weight >= BYTES then
    break
  end
  local r = open(call('HGET', TASKS, ARGV[at]))
  replies[#replies + 1] = not r and -1
    or (r.status == DIED and replay(ARGV[at], r, NOW + tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])) or REFUSALS[r.status])
end
if changed then
  rehead(TENANT)
end
return { NOW, hang(fresh), replies }
