-- What the scripts that end tasks share: the tasks that tell of an end, and lapsed leases.
--
-- ARGV    those of shard, then before the verb's own: deaths (1 where each is notified), the retry policy of
--         notifications
--         (as it stands in a record, without an origin)

local deaths, policy

function endings.begin()
  deaths, policy = ARGV[shard.FIRST] == '1', ARGV[shard.FIRST + 1]
  shard.FIRST = shard.FIRST + 2
end

-- Completion notifications (domain/notification.py). ------------------------------------------------------------------

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
function endings.notifications_of(sid, r)
  local _, _, group_end, notify_end = record.ends_of(r.rest)
  local death = deaths and r.status == fields.DIED
  if (group_end == notify_end and not death) or record.is_notification(sid) then
    return NOBODY
  end
  local notifications = {}
  if group_end < notify_end then
    -- Without what the receiver is to get besides, after a space: that is looked up when it is sent.
    local text = sub(r.rest, group_end + 1, notify_end)
    local notify, auth = match(text, '^[^ ]*'), match(text, ' auth=([^ ]+)')
    local is_url = string.find(notify, '://', 1, true)
    notifications[1] = notification(sid, r, 'n', is_url and 'task.ended' or notify, is_url and notify or '', auth)
  end
  if death then
    notifications[#notifications + 1] = notification(sid, r, 'd', 'task.dead', '')
  end
  return notifications
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

-- Adds notifications, due now, but never over one that is pending; after a script's first write alone, for it begins
-- with another than ZREM.
function endings.notify(notifications)
  if #notifications == 0 then
    return
  end
  local fence = shard.next_fence(#notifications) - #notifications
  for i, pair in ipairs(notifications) do
    local sid, tenant = pair[1], tenants.tenant_of(pair[1])
    local data = layout.fresh_record(shard.LAYOUT, 0, shard.NOW, shard.NOW, fence + i, 0, pair[2])
    local new = call('HSETNX', shard.TASKS, sid, data) == 1
    if not new and has_ended(sid) then
      call('HSET', shard.TASKS, sid, data)
      new = true
    end
    if new then
      call('ZADD', shard.DUE[tenant], record.due_score(sid, shard.NOW), sid)
      tenants.rehead(tenant)
      shard.notified = true
    end
  end
end

-- Deliveries that come to nothing. ------------------------------------------------------------------------------------

local MOST_STRIKES = 20 -- deliveries of one run that its target did not begin though it was free
local FIRST_DELAY, LONGEST_DELAY, LONGEST_BUSY = 1000, 300000, 30000 -- ms

-- A delivery that was not begun is scheduled again, later each time, with all its attempts. A strike, which is one that
-- the target was free to begin, may be its end; one that waited for a busy target is none, however often.
function endings.undelivered(r, strike, detail)
  local outcome = strike and fields.RAN_UNDELIVERED or fields.RAN_RELEASE
  local times = record.times_given_back(r, outcome) + 1
  local dies = strike and times >= MOST_STRIKES
  if not strike then
    places.note_missed(r)
  end
  record.remember(r, outcome, dies and 'undelivered: ' .. detail or detail)
  leases.end_delivery(r)
  if dies or leases.expired(r) then
    r.status = fields.DIED
    return false
  end
  local longest = strike and LONGEST_DELAY or LONGEST_BUSY
  r.status, r.due = fields.SCHEDULED, shard.NOW + math.min(FIRST_DELAY * 2 ^ (times - 1), longest)
  return true
end

-- Lapsed leases. ------------------------------------------------------------------------------------------------------

-- When a task runs again whose lease lapsed: at once, which is from the lease's end on; where its run before lapsed
-- too, once its policy's wait is over.
local function due_after_lapse(r, ended)
  return record.times_in_a_row(r, fields.RAN_LAPSED) > 0 and shard.NOW + leases.backoff(r) or ended
end

-- Ends the run of a lapsed lease. Answers whether the task lives.
local function end_run(r, ended)
  if r.target and places.is_busy(r) then
    return endings.undelivered(r, false, 'waited for ' .. r.target .. ', which was busy with other tasks')
  elseif r.target then
    return endings.undelivered(r, true, 'handed over to ' .. r.target .. ', but the function did not begin it')
  end
  local due = due_after_lapse(r, ended)
  record.remember(r, fields.RAN_LAPSED, 'the lease lapsed')
  return leases.retry_or_die(r, due)
end

-- Puts a task whose lease lapsed where it belongs, or its successor in its place. Answers how many died.
local function take_back(sid, tenant, r, ended)
  r.last = 0
  if r.target then
    places.free_place(sid, r.target)
  end
  local successor = record.has_successor(r) and history.succeed(sid, r)
  local dies = not successor and not end_run(r, ended)
  record.put(sid, successor or r)
  tenants.rehead(tenant)
  endings.notify(dies and endings.notifications_of(sid, r) or NOBODY)
  return dies and 1 or 0
end

-- The same where its record cannot be read: it can be neither run nor ended, and lies with the dead where it is there.
local function take_back_unread(sid, data)
  places.free_lost_place(sid)
  if data then
    call('ZADD', shard.DEAD, shard.NOW, sid)
    record.note_end(sid, 0)
  end
  return data and 1 or 0
end

-- Takes back at most `limit` lapsed leases, and no more once their records weigh `most` bytes. Answers how many, how
-- many of them died, and whether it stopped at a bound; tenants that it could not serve it adds to `want`. It begins
-- with ZREM, which runs where memory is short.
function endings.reclaim(limit, want, most)
  local lapsed = call('ZRANGEBYSCORE', shard.LEASED, '-inf', shard.NOW_TEXT, 'WITHSCORES', 'LIMIT', '0', limit)
  local reclaimed, died, ended = 0, 0, {}
  for i = 1, #lapsed, 2 do
    local sid = lapsed[i]
    local tenant = tenants.tenant_of(sid)
    if shard.weight >= most then
      limit = reclaimed
      break
    elseif not shard.DUE[tenant] then
      want[#want + 1] = tenant
    else
      call('ZREM', shard.LEASED, sid)
      local data = call('HGET', shard.TASKS, sid)
      local r = record.open(data)
      if data and record.is_foreign(data) then -- of a later version: left alone for a while
        call('ZADD', shard.LEASED, shard.NOW + record.PUT_OFF, sid)
      else
        died = died + (r and take_back(sid, tenant, r, tonumber(lapsed[i + 1])) or take_back_unread(sid, data))
        ended[tenant] = (ended[tenant] or 0) - 1
      end
      reclaimed = reclaimed + 1
    end
  end
  if next(ended) then
    leases.count_running(ended, 0)
  end
  return reclaimed, died, reclaimed == limit
end
