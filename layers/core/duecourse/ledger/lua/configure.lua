-- Sets the queue anew, in one of its shards. A queue of several shards is set in its first one, whose settings are the
-- queue's record. Each change makes a new version of that (`revision`), and all others get the whole record.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: 1 for a default, which sets what is not set and lets the queue be forgotten, or else
--         the mark of who sets it ("-" for none), and behind a space what `set_by` must be ("*" for anything); fields
--         of meta and their values for the whole queue, "" for none. Those of a default are max_running, and
--         tenant_max_running or nothing: the second is set only where the first is a default. Or "q", and the
--         deployment's quotas (modules/settings.lua). Or "r", then ">" to set a shard whose version is older, or the
--         version that the shard must have, and the fields of the record, of which `revision` is the last. Or "w", for
--         a further step of what a change has begun
-- RETURNS {now, bell_at, 1 where a further step is to be made, -1 where `set_by` is another and nothing is set}
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local function sets(field)
  for at = shard.FIRST + 1, #ARGV, 2 do
    if ARGV[at] == field then
      return true
    end
  end
end

-- Makes a new version of a queue's record. It is of the time, for a server that has taken over may have lost the
-- newest.
local function renew()
  if shard.COUNT ~= '1' then
    local own = tonumber(call('HGET', shard.META, 'revision') or 0) or 0
    call('HSET', shard.META, 'revision', values.text_of(math.max(own + 1, shard.NOW)))
  end
end

-- Takes over the queue's record.
local function take_over()
  local own, wanted = call('HGET', shard.META, 'revision') or '', ARGV[shard.FIRST + 1]
  local older = wanted == '>' and (tonumber(own) or 0) < tonumber(ARGV[#ARGV])
  if older or wanted == own then
    settings.set(shard.FIRST + 2)
  end
end

local was_throttled = bell.is_throttled()
if ARGV[shard.FIRST] == 'q' then
  settings.set_defaults(ARGV[shard.FIRST + 1])
elseif ARGV[shard.FIRST] == 'r' then
  take_over()
elseif ARGV[shard.FIRST] == 'w' then
  call('ZREM', shard.LEASED, '')
  settings.wake_parked()
elseif ARGV[shard.FIRST] == '1' then
  call('ZREM', shard.LEASED, '')
  call('HDEL', shard.META, 'idle') -- whoever set this goes on for a while in the belief that it is set
  local defaulted = tonumber(call('HGET', shard.META, 'defaulted') or 0)
  for at = shard.FIRST + 1 + 2 * defaulted, #ARGV, 2 do
    if ARGV[at + 1] == '' or call('HSETNX', shard.META, ARGV[at], ARGV[at + 1]) == 0 then
      break -- it is an operator's: the next one goes with the default alone
    end
    defaulted = defaulted + 1
    call('HSET', shard.META, 'defaulted', defaulted)
    renew()
  end
  shard.read_meta()
  settings.note_quotas()
else
  local mine, seen = match(ARGV[shard.FIRST], '^(%S+) (.*)$')
  local set_by = call('HGET', shard.META, 'set_by') or '' -- number of the newest change, and its mark
  local number, mark = match(set_by, '^(%d+) (%S+)$')
  local is_mine = mark == mine and mine ~= '-'
  if seen ~= '*' and set_by ~= seen and not is_mine then
    return { shard.NOW, bell.hang(false), -1 }
  end
  if call('HGET', shard.META, 'defaulted') == '2' and sets('max_running') and not sets('tenant_max_running') then
    call('HDEL', shard.META, 'tenant_max_running') -- a part of the default that is none any more
  end
  settings.set(shard.FIRST + 1)
  call('HDEL', shard.META, 'defaulted')
  if not is_mine then
    call('HSET', shard.META, 'set_by', values.text_of((tonumber(number) or 0) + 1) .. ' ' .. mine)
  end
  renew()
end
if shard.COUNT ~= '1' then
  call('HSET', shard.META, 'shards', shard.COUNT)
end
return {
  shard.NOW, bell.hang(was_throttled and not bell.is_throttled()), call('HEXISTS', shard.META, 'unpark'),
}
