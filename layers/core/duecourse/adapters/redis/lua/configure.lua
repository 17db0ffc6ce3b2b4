-- Sets the queue anew, in one of its shards.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: 1 for a default, which sets what is not set and lets the queue be forgotten, or else the
--         mark of who sets it, and behind a space the mark that must be there ("*" for any, "" for none); fields of
--         meta and their values for the whole queue, "" for none. Those of a default are max_running, and
--         tenant_max_running or nothing: the second is set only where the first is a default. Or "q", and the
--         deployment's quotas (modules/settings.lua)
-- RETURNS {now, bell_at, 0 where another mark is there, and nothing is set}
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local function sets(field)
  for at = shard.FIRST + 1, #ARGV, 2 do
    if ARGV[at] == field then
      return true
    end
  end
end

local was_throttled = bell.is_throttled()
if ARGV[shard.FIRST] == 'q' then
  settings.set_defaults(ARGV[shard.FIRST + 1])
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
  end
  shard.read_meta()
  settings.note_quotas()
else
  local mine, seen = match(ARGV[shard.FIRST], '^(%x+) (.*)$')
  local set_by = call('HGET', shard.META, 'set_by') or ''
  if seen ~= '*' and set_by ~= seen and set_by ~= mine then
    return { shard.NOW, bell.hang(false), 0 }
  end
  call('HSET', shard.META, 'set_by', mine)
  if call('HGET', shard.META, 'defaulted') == '2' and sets('max_running') and not sets('tenant_max_running') then
    call('HDEL', shard.META, 'tenant_max_running') -- a part of the default that is none any more
  end
  settings.set(shard.FIRST + 1)
  call('HDEL', shard.META, 'defaulted')
end
if shard.COUNT ~= '1' then
  call('HSET', shard.META, 'shards', shard.COUNT)
end
return { shard.NOW, bell.hang(was_throttled and not bell.is_throttled()), 1 }
