-- Gives tasks new due times: scheduled ones, leased ones by force, done ones where they may be revived.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's, then for each task: stored id, due ("+ms" from now, or epoch ms), state ("" as it is, "=<json>"
--         new), force (1), revive (1), by whom
-- RETURNS {now, bell_at, {reply...}}; a reply is 0 moved, -1 absent, -3 leased, -4 done, -5 cancelled, -6 dead

--include prelude fresh record history lease

local ITEM = 6
local REFUSALS = { [LEASE] = -3, [FINISHED] = -4, [CANCELLED] = -5, [DIED] = -6 }
local replies, fresh = {}, false

-- A task that ran and is moved is a new generation, with all its attempts.
local function begin_anew(r)
  r.generation, r.run, r.attempt, r.claimed, r.fence, r.nonce = next_fence(), 0, 1, 0, 0, NO_NONCE
  r.last, r.door = 0, 0
end

local function allowed(r, at)
  return r.status == SCHEDULED or (r.status == LEASE and ARGV[at + 3] == '1')
    or (r.status == FINISHED and ARGV[at + 4] == '1')
end

local function leave(sid, r)
  if r.status == LEASE then
    call('ZREM', LEASED, sid)
    count_running(tenant_of(sid), -1)
    remember(r, TAKEN, '')
    if has_successor(r) then
      drop_successor(sid, r)
    end
  elseif r.status == FINISHED then
    call('ZREM', DONE, sid)
    local body, state, _, log = split(r.rest)
    r.rest = join(body, state, '', log)
  end
end

local function move(sid, at, r)
  local due = instant(ARGV[at + 1], NOW)
  local stays = r.status == SCHEDULED and r.run == 0 and r.due == due -- as where a move is sent again
  leave(sid, r)
  if r.run > 0 then
    begin_anew(r)
  end
  if not stays then
    note(r, MOVED, ARGV[at + 5], r.due, due)
  end
  r.status, r.due = SCHEDULED, due
  if ARGV[at + 2] ~= '' then
    set_state(r, string.sub(ARGV[at + 2], 2))
  end
  call('ZADD', DUE[tenant_of(sid)], r.due, sid)
  call('HSET', TASKS, sid, close(r))
  rehead(tenant_of(sid))
  fresh = fresh or r.due <= NOW
  return 0
end

for at = FIRST, #ARGV, ITEM do
  local r = open(call('HGET', TASKS, ARGV[at]))
  replies[#replies + 1] = not r and -1 or (allowed(r, at) and move(ARGV[at], at, r) or REFUSALS[r.status])
end
return { NOW, hang(fresh), replies }
