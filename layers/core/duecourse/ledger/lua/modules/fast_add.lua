-- The fast way of most adds, tried before the whole one: one task of no group, or a new schedule, without a large
-- payload. Its id is new. It is not due yet, no earlier than its tenant's next, and no earlier than a bell that hangs
-- as early as anything needs. So it changes neither the bell nor the tenant's place, and needs none of the other
-- modules, which take longer to make than all that it does.
--
-- ARGV    add.lua's or schedule.lua's. Of add.lua: 4 registered, 5 echo, 6 unique, 7 since, 8 id, 9 mode, 10 due,
--         11 deadline, 12 max wait, 13 group, 14 rest. Of schedule.lua: 4 registered, 5 id, 6 tenant, 7 seen, 8 due,
--         9 rest, 10 when its times were computed

local OF_SCHEDULE = 10 -- how many those are
local AHEAD, PER_MS = 60000, 64 -- ms that fences may be ahead: else the clock was put back (modules/put_back.lua)

-- Answers as add.lua or schedule.lua, or nil where another add is asked for: then it has written nothing.
function fast_add.begin()
  local sid, at, rest, computed_at = ARGV[8], ARGV[10], ARGV[14], 0
  if #ARGV == OF_SCHEDULE and ARGV[7] == '' and not match(ARGV[5], '~') then -- a backfill has its series to look at
    sid, at, rest, computed_at = ARGV[5], ARGV[8], ARGV[9], tonumber(ARGV[10])
  elseif #ARGV ~= 14 or ARGV[6] ~= '' or ARGV[11] ~= '' or ARGV[13] ~= '' then
    return nil
  end
  local meta = KEYS[8]
  local now, valid, hung = nil, tonumber(ARGV[1]), nil
  if valid then
    local time = call('TIME')
    now, hung = time[1] * 1000 + math.floor(time[2] / 1000), call('GET', KEYS[9])
  else
    now, hung = tonumber(sub(ARGV[1], 2)), call('HGET', meta, 'bell_at')
  end
  local after = match(at, '^%+(%d+)$')
  local due = after and now + after or tonumber(at)
  hung = tonumber(hung or nil)
  if hung and now <= (valid or now) and now <= hung and hung <= due and now < due and #rest <= fields.INSIDE then
    local tenant, first = match(sid, '^[^/]*'), call('ZRANGE', KEYS[2], '0', '0', 'WITHSCORES')
    local head = tonumber(first[1] == tenant and first[2] or call('ZSCORE', KEYS[2], tenant) or nil)
    local lease = tonumber(call('ZRANGE', KEYS[4], '0', '0', 'WITHSCORES')[2])
    local right = head and head <= due and hung <= tonumber(first[2]) and hung <= (lease or hung)
      and call('ZCARD', KEYS[3]) == 0
    -- A shard that names this version has drawn a fence, so it is registered.
    local known = call('HMGET', meta, 'layout', 'leaving', 'wake', 'shards', 'clock', 'fence', 'quotas', 'numbers')
    local version, leaving, wake, shards, clock, fence, quotas, counted = unpack(known)
    fence, counted = tonumber(fence or 0), counted or ''
    local minute = pack('>I4', math.floor(now / numbers.MINUTE))
    local goes_on = sub(counted, 1, 4) == minute and #counted <= numbers.FEW + 6 * byte(counted, 5)
    local ours = version == fields.VERSION_TEXT and not leaving and not wake and (shards or ARGV[3]) == ARGV[3]
      and (clock or valid) and not quotas and fence <= (now + AHEAD) * PER_MS
      and (computed_at == 0 or math.abs(computed_at - now) <= AHEAD)
    if right and ours and goes_on and call('HEXISTS', KEYS[1], sid) == 0 then
      local drawn = fence + fences.step(fence, now, 1)
      counted = #ARGV == 14 and counted .. numbers.ONE_ADDED or counted
      call('HSET', meta, 'fence', string.format('%d', drawn), 'numbers', counted)
      local data = layout.new_record(0, due, now, drawn, 0, rest)
      call('HSET', KEYS[1], sid, data)
      call('ZADD', KEYS[15], string.format('%d', due), sid)
      return #ARGV == 14 and { now, hung, { 1 }, ARGV[5] == '1' and { data } or {}, {} } or { now, hung, 1, 0 }
    end
  end
end
