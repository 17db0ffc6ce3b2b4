-- Gives tasks new due times: scheduled ones, leased ones by force, done ones where they may be revived.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard (of tenants the one), then: 1 where all is one step, then for each task: stored id, due ("+ms"
--         from now, or epoch ms), state ("" as it is, "=<json>" new), force (1), revive (1), by whom, 8 bytes that are
--         this move's alone, the same where it is sent again, the version that it must have (modules/history.lua)
-- RETURNS {now, bell_at, {reply...}}; a reply is 0 moved, -1 absent, -3 leased, -4 done, -5 cancelled, -6 dead, -11 it
--         would be due no sooner than its deadline, -12 to -17 over a quota of its tenant, as in add.lua, -19 it is of
--         another version; there are fewer than tasks where its bytes ran out before the last, and it is not one step

local ITEM = 8
local PAST_DEADLINE, CHANGED = -11, -19
local OF_CALLERS = { [fields.DID_DEBOUNCED] = true, [fields.DID_MOVED] = true, [fields.DID_REPLAYED] = true }
local changed, made_due = false, false

-- A task that ran and is moved is a new generation, with all its attempts.
local function begin_anew(r)
  r.generation, r.run, r.attempt, r.claimed, r.fence, r.nonce = shard.next_fence(), 0, 1, 0, 0, layout.NO_NONCE
  r.last, r.trigger = 0, 0
end

local function allowed(r, at)
  return r.status == fields.SCHEDULED or (r.status == fields.LEASE and ARGV[at + 3] == '1')
    or (r.status == fields.FINISHED and ARGV[at + 4] == '1')
end

-- Whether this very move was made before: it is sent again, for its reply was lost.
local function moved_before(r, at)
  local _, _, _, log = record.split(r.rest)
  local mine = '\0' .. ARGV[at + 6]
  for letter, body in record.entries(log) do
    if letter == fields.DID_MOVED and sub(body, -#mine) == mine then
      return true
    end
  end
  return false
end

-- From when a deadline counts that was given as a duration: the due time that a caller gave last, else the first run's.
-- Of what has run for so long that it has forgotten that, it is the oldest run's that it remembers.
local function counted_from(r)
  local _, _, _, log = record.split(r.rest)
  local due
  for letter, body in record.entries(log) do
    if letter == fields.DID_ADDED or letter == fields.DID_REPLACED then
      due = nil -- of what stood here before this one
    elseif OF_CALLERS[letter] then
      local _, wanted = unpack_struct(fields.CHANGE_FORMAT, body)
      due = wanted
    elseif not due then
      local _, _, claimed, _, late = unpack_struct(fields.RUN_FORMAT, body)
      due = claimed > 0 and claimed - late or nil
    end
  end
  return due or r.due
end

-- The deadline of a task that is due at another time: one that was given as a duration moves along. Nil where the task
-- would be dead before it could run.
local function deadline_when(r, due)
  local deadline = r.deadline
  if deadline > 0 and bit.band(r.flags, fields.COUNTS) ~= 0 then
    deadline = due + deadline - counted_from(r)
  end
  return (deadline == 0 or deadline > math.max(due, shard.NOW)) and deadline or nil
end

-- Takes a task out of where it stands; answers what stands there then.
local function leave(sid, r)
  if r.status == fields.LEASE then
    return force.take_away(sid, r)
  elseif r.status == fields.FINISHED then
    call('ZREM', shard.DONE, sid)
    record.note_occurrence(sid, r.flags, fields.SCHEDULED)
    local body, state, result, log = record.split(r.rest)
    if r.flags % tenant_bytes.TWICE > 0 then
      tenant_bytes.grow(shard.TENANT, -#result)
    end
    r.rest = record.join(body, state, '', log)
  end
  return r
end

local function move(sid, at, r, due, deadline)
  local stays = r.status == fields.SCHEDULED and r.run == 0 and r.due == due -- which the log has once
  r = leave(sid, r)
  if r.run > 0 then
    begin_anew(r)
  end
  history.note(r, fields.DID_MOVED, ARGV[at + 5] .. '\0' .. ARGV[at + 6], r.due, due, nil, stays)
  r.status, r.due, r.deadline = fields.SCHEDULED, due, deadline
  if ARGV[at + 2] ~= '' then
    history.set_state(r, sub(ARGV[at + 2], 2))
  end
  tenant_bytes.enter(sid, r)
  record.put(sid, r)
  changed, made_due = true, made_due or r.due <= shard.NOW
  return 0
end

local function answer(sid, at)
  local data = call('HGET', shard.TASKS, sid)
  local r = record.open(data)
  if not r then
    return -1
  elseif moved_before(r, at) then
    return 0
  elseif not history.is_as_seen(sid, r, ARGV[at + 7]) then
    return CHANGED
  elseif not allowed(r, at) then
    return record.refusal(r)
  end
  local due = values.instant(ARGV[at + 1], shard.NOW)
  local successor = record.has_successor(r) and record.open(call('HGET', shard.TASKS, sid .. '+'))
  local deadline = deadline_when(successor or r, due)
  return deadline and move(sid, at, r, due, deadline) or PAST_DEADLINE
end

-- What a quota answers to the done ones of one step that are to run anew: all of them are adds. Nil where there is
-- room.
local function refusal()
  local count, bytes = 0, 0
  for at = shard.FIRST + 1, #ARGV, ITEM do
    local r = ARGV[at + 4] == '1' and record.open(call('HGET', shard.TASKS, ARGV[at]))
    if r and r.status == fields.FINISHED then
      count, bytes = count + 1, bytes + tenant_bytes.more_by(ARGV[at], r)
    end
  end
  return quotas.refusal(shard.TENANT, count, bytes, count, count, 0)
end

local is_whole = ARGV[shard.FIRST] == '1'
local refused = is_whole and shard.QUOTAS and refusal()
local replies = record.each(shard.FIRST + 1, ITEM, is_whole, refused and function() return refused end or answer)
if changed then
  tenants.rehead(shard.TENANT)
end
if shard.occurred then
  require 'announce'
  announce.ends()
end
return { shard.NOW, bell.hang(made_due), replies }
