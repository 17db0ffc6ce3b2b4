-- The time of a script that is about no shard, and the end of one that comes too late.
--
-- ARGV    1 the clock (modules/shard.lua)
-- RETURNS the error of modules/values.lua, where the call is not valid any more
--
-- NOW     the time in epoch milliseconds

function clock.begin()
  clock.NOW = values.now(ARGV[1])
  if ARGV[1] ~= '' and ARGV[1] < values.text_of(clock.NOW) then
    return redis.error_reply(values.LATE)
  end
end
