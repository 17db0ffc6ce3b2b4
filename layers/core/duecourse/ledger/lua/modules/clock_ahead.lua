-- A clock that has gone far ahead of the newest fence, or is behind it: the next sweep is to know. It is apart from
-- modules/put_back.lua, for each script makes it.
--
-- KEYS    as in shard.lua
-- ARGV    shard's

local HOUR = 3600000

-- Ends a script that may have counted from the clock, which is so far ahead of the newest fence (ms).
function clock_ahead.note(by)
  if by < 0 then
    local saw = match(call('HGET', shard.META, 'put_back') or '', '^%d+')
    if saw and shard.NOW - saw > HOUR then
      call('HDEL', shard.META, 'put_back')
    end
  elseif call('HLEN', shard.TASKS) > 0 then -- else the shard may be idle
    call('ZREM', shard.LEASED, '') -- this may be the script's first write, and memory short
    shard.next_fence()
  end
end
