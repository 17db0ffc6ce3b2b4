-- Completion notifications (ledger/task.py), for the scripts that end tasks: a task that reports the end of another.
--
-- ARGV    those of shard, then before the verb's own: deaths (1 where each is notified), the retry policy of
--         notifications (as it stands in a record, without an origin)

local deaths, policy

function notifications.begin()
  deaths, policy = ARGV[shard.FIRST] == '1', ARGV[shard.FIRST + 1]
  shard.FIRST = shard.FIRST + 2
end

local NO_ORIGIN, BY = string.rep('\0', 8), 'duecourse'
local NOBODY = {}

-- A notification's stored id, and its record's rest.
local function notification(sid, r, mark, kind, url, auth)
  local id, group = match(sid, '/(.*)$'), record.group_of(r.rest)
  local state, detail = 'done', ''
  if r.status == fields.DIED then
    state, detail = 'dead', r.detail
  end
  local payload = '{"ended":{"id":' .. cjson.encode(id) .. ',"generation":' .. values.text_of(r.generation) .. ',"run":'
    .. values.text_of(r.run) .. ',"state":"' .. state .. '","at":' .. values.text_of(shard.NOW)
    .. ',"error":' .. cjson.encode(detail) .. ',"url":' .. cjson.encode(url)
    .. (auth and ',"auth":' .. cjson.encode(auth) or '') .. '}}'
  group = group ~= '' and group or id
  local lengths = pack(fields.LENGTHS_FORMAT, #BY, #kind, #group, 0, #payload)
  return {
    sid .. '~' .. values.text_of(r.generation) .. '.' .. values.text_of(r.run) .. '~' .. mark,
    NO_ORIGIN .. policy .. lengths .. BY .. kind .. group .. payload,
  }
end

-- The notifications of a task that is done or dead. It writes nothing.
function notifications.of(sid, r)
  local _, _, group_end, notify_end = record.ends_of(r.rest)
  local death = deaths and r.status == fields.DIED
  if (group_end == notify_end and not death) or record.is_notification(sid) then
    return NOBODY
  end
  local found = {}
  if group_end < notify_end then
    -- Without what the receiver is to get besides, after a space: that is looked up when it is sent.
    local text = sub(r.rest, group_end + 1, notify_end)
    local notify, auth = match(text, '^[^ ]*'), match(text, ' auth=([^ ]+)')
    local is_url = string.find(notify, '://', 1, true)
    found[1] = notification(sid, r, 'n', is_url and 'task.ended' or notify, is_url and notify or '', auth)
  end
  if death then
    found[#found + 1] = notification(sid, r, 'd', 'task.dead', '')
  end
  return found
end

-- Whether a notification that stands there has ended, and is out of its place: a task that expired unclaimed, is
-- replayed and expires again has the same run.
local function has_ended(sid)
  local r = record.open(call('HGET', shard.TASKS, sid))
  if not r or r.status == fields.SCHEDULED or r.status == fields.LEASE then
    return false
  end
  call('ZREM', shard.DONE, sid)
  call('ZREM', shard.DEAD, sid)
  return true
end

-- Adds notifications, due now, but not in the place of one that is pending. Only after a script's first write: this one
-- is no ZREM.
function notifications.add(made)
  if #made == 0 then
    return
  end
  local fence = shard.next_fence(#made) - #made
  for i, pair in ipairs(made) do
    local sid, tenant = pair[1], tenants.tenant_of(pair[1])
    local data = layout.new_record(0, shard.NOW, shard.NOW, fence + i, 0, pair[2])
    local new = call('HSETNX', shard.TASKS, sid, data) == 1
    if not new and has_ended(sid) then
      call('HSET', shard.TASKS, sid, data)
      new = true
    end
    if new then
      call('ZADD', shard.DUE[tenant], record.due_score(sid, shard.NOW), sid)
      tenants.rehead(tenant)
      shard.notified = true
      shard.entries = shard.entries .. numbers.ONE_ADDED
    end
  end
end
