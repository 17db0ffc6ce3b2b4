-- Schedules dead tasks, with all their attempts.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: by whom, then for each task: stored id, how many ms from now it is due, how many after
--         that it is given up (0 never), the version that it must have (modules/history.lua)
-- RETURNS {now, bell_at, {reply...}}; a reply is 0 replayed, -1 absent, -2 scheduled, -3 leased, -4 done, -5 cancelled,
--         -12 and -13 over a quota of its tenant: of pending tasks, bytes; -19 it is of another version; there are
--         fewer than tasks where its bytes ran out before the last

local changed, made_due = false, false

local function replay(sid, at)
  local r = record.open(call('HGET', shard.TASKS, sid))
  if not r then
    return -1
  elseif not history.is_as_seen(sid, r, ARGV[at + 3]) then
    return -19
  elseif r.status ~= fields.DIED then
    return record.refusal(r)
  end
  local refused = quotas.refusal(shard.TENANT, 1, tenant_bytes.more_by(sid, r), 0, 1, 0)
  if refused then
    return refused
  end
  local due, life = shard.NOW + tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  history.note(r, fields.DID_REPLAYED, ARGV[shard.FIRST], r.due, due)
  r.status, r.attempt, r.deadline, r.due = fields.SCHEDULED, 1, life > 0 and due + life or 0, due
  r.flags = bit.bor(r.flags, fields.COUNTS)
  call('ZREM', shard.DEAD, sid)
  tenant_bytes.enter(sid, r)
  record.put(sid, r)
  record.note_occurrence(sid, r.flags, r.status)
  changed, made_due = true, made_due or due <= shard.NOW
  return 0
end

local replies = record.each(shard.FIRST + 1, 4, false, replay)
if changed then
  tenants.rehead(shard.TENANT)
end
if shard.occurred then
  require 'announce'
  announce.ends()
end
return { shard.NOW, bell.hang(made_due), replies }
