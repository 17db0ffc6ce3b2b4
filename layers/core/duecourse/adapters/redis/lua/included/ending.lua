-- What the scripts that end tasks share: the tasks that tell of an end, and lapsed leases.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's, then before the verb's own: deaths (1 where they are told of), the retry policy of follow-ups (as it
--         stands in a record, without an origin)
-- RETURNS nothing

--exports undelivered followed tell_of follow reclaim

local DEATHS, POLICY = ARGV[FIRST] == '1', ARGV[FIRST + 1]
FIRST = FIRST + 2

-- Follow-ups (domain/follow_up.py). -----------------------------------------------------------------------------------

local NO_ORIGIN, BY = string.rep('\0', 8), 'duecourse'
local NOBODY = {}
followed = false -- whether there is one: it is due now

-- A follow-up's stored id, and its record's rest.
local function follow_up(sid, r, mark, kind, url)
  local id, group = string.match(sid, '/(.*)$'), group_of(r.rest)
  local state, detail = 'done', ''
  if r.status == DIED then
    state, detail = 'dead', r.detail
  end
  local payload = '{"ended":{"id":' .. cjson.encode(id) .. ',"generation":' .. text_of(r.generation) .. ',"run":'
    .. text_of(r.run) .. ',"state":"' .. state .. '","at":' .. text_of(NOW) .. ',"error":' .. cjson.encode(detail)
    .. ',"url":' .. cjson.encode(url) .. '}}'
  group = group ~= '' and group or id
  return { sid .. '~' .. text_of(r.generation) .. '.' .. text_of(r.run) .. '~' .. mark, NO_ORIGIN .. POLICY
    .. pack(LENGTHS, #BY, #kind, #group, 0, #payload) .. BY .. kind .. group .. payload }
end

-- The follow-ups of a task that is done or dead. It writes nothing.
function tell_of(sid, r)
  local _, _, group_end, notify_end = ends_of(r.rest)
  local death = DEATHS and r.status == DIED
  if (group_end == notify_end and not death) or is_follow_up(sid) then
    return NOBODY
  end
  local told = {}
  if group_end < notify_end then
    -- Without what it is to be told besides, after a space: that is looked up as it is told.
    local notify = string.match(string.sub(r.rest, group_end + 1, notify_end), '^[^ ]*')
    local is_url = string.find(notify, '://', 1, true)
    told[1] = follow_up(sid, r, 'n', is_url and 'task.ended' or notify, is_url and notify or '')
  end
  if death then
    told[#told + 1] = follow_up(sid, r, 'd', 'task.dead', '')
  end
  return told
end

-- Whether a follow-up that stands there has ended, and is out of its place: who was buried, is replayed and is buried
-- again has the same run.
local function has_told(sid)
  local r = open(call('HGET', TASKS, sid))
  if not r or r.status == SCHEDULED or r.status == LEASE then
    return false
  end
  call('ZREM', DONE, sid)
  call('ZREM', DEAD, sid)
  return true
end

-- Adds follow-ups, due now, but where one is yet to tell of the same; after a script's first write alone, for it begins
-- with another than ZREM.
function follow(told)
  if #told == 0 then
    return
  end
  local fence = next_fence(#told) - #told
  for i, pair in ipairs(told) do
    local sid, tenant = pair[1], tenant_of(pair[1])
    local data = fresh_record(0, NOW, NOW, fence + i, 0, pair[2])
    local new = call('HSETNX', TASKS, sid, data) == 1
    if not new and has_told(sid) then
      call('HSET', TASKS, sid, data)
      new = true
    end
    if new then
      call('ZADD', DUE[tenant], due_score(sid, NOW), sid)
      rehead(tenant)
      followed = true
    end
  end
end

-- Deliveries that come to nothing. ------------------------------------------------------------------------------------

local MOST_UNDELIVERED, FIRST_DELAY, LONGEST_DELAY = 20, 1000, 300000 -- in a row, and ms

-- A delivery that was not begun is scheduled again, later each time, with all its attempts, or dead.
function undelivered(r, detail)
  local times = times_in_a_row(r, UNDELIVERED) + 1
  local dies = times >= MOST_UNDELIVERED
  remember(r, UNDELIVERED, dies and 'undelivered: ' .. detail or detail)
  end_delivery(r)
  if dies or expired(r) then
    r.status = DIED
    return false
  end
  r.status, r.due = SCHEDULED, NOW + math.min(FIRST_DELAY * 2 ^ (times - 1), LONGEST_DELAY)
  return true
end

-- Lapsed leases. ------------------------------------------------------------------------------------------------------

local LAPSED = 76 -- L, as it stands in the log

-- When a task runs again whose lease lapsed: at once, which is from the lease's end on; where its run before lapsed too, once
-- its policy's wait is over.
local function due_after_lapse(r, ended)
  return times_in_a_row(r, LAPSED) > 0 and NOW + backoff(r) or ended
end

-- Takes back at most `limit` lapsed leases, and no more once their records weigh `most` bytes. Answers how many, how many
-- of them died, and whether it stopped at a bound; tenants that it could not serve it adds to `want`. It begins with ZREM,
-- which runs where memory is short.
function reclaim(limit, want, most)
  local lapsed = call('ZRANGEBYSCORE', LEASED, '-inf', NOW_TEXT, 'WITHSCORES', 'LIMIT', '0', limit)
  local reclaimed, died = 0, 0

  local function take_back(sid, tenant, r, ended)
    r.last = 0
    if r.target then
      free_place(sid, r.target)
    end
    local successor = has_successor(r) and succeed(sid, r)
    if successor then
      if r.target then
        end_delivery(r)
      end
      r = successor
    else
      local lives
      if r.target then
        lives = undelivered(r, 'handed over to ' .. r.target .. ', but the function did not begin it')
      else
        local due = due_after_lapse(r, ended)
        remember(r, LAPSED, 'the lease lapsed')
        lives = retry_or_die(r, due)
      end
      if not lives then
        died = died + 1
        call('ZADD', DEAD, NOW, sid)
        follow(tell_of(sid, r))
      end
    end
    if r.status == SCHEDULED then
      call('ZADD', DUE[tenant], due_score(sid, r.due), sid)
    end
    call('HSET', TASKS, sid, close(r))
    rehead(tenant)
  end

  for i = 1, #lapsed, 2 do
    local sid = lapsed[i]
    local tenant = tenant_of(sid)
    if weight >= most then
      return reclaimed, died, true
    elseif not DUE[tenant] then
      want[#want + 1] = tenant
    else
      call('ZREM', LEASED, sid)
      local data = call('HGET', TASKS, sid)
      local r = open(data)
      if data and not r and is_foreign(data) then
        call('ZADD', LEASED, NOW + PUT_OFF, sid)
      else
        count_running(tenant, -1)
        if not r then
          free_lost_place(sid)
        end
      end
      if r then
        take_back(sid, tenant, r, tonumber(lapsed[i + 1]))
      elseif data and not is_foreign(data) then -- it can be neither run nor ended: it lies with the dead
        died = died + 1
        call('ZADD', DEAD, NOW, sid)
      end
      reclaimed = reclaimed + 1
    end
  end
  return reclaimed, died, reclaimed == limit
end
