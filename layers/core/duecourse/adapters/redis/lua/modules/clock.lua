-- The time of a call, and the end of one that comes after its caller has given it up.
--
-- ARGV    1 the clock: "-<ms>" the server's, with the instant until which the call is valid; "" the server's, of a call
--         that is always valid; "<ms>" this time in place of the server's
-- RETURNS the error LATE where that instant is past: nothing is changed then
--
-- NOW     the time in epoch milliseconds: once, for it moves while a script runs
-- TRAVEL  whether it is in place of the server's
--
-- A request can be held up on its way, in a buffer of a connection that is closed, and reach the server after its caller
-- has given up, and has done something else since. So every script that changes anything speaks of this module.

function clock.begin()
  local given = tonumber(ARGV[1])
  clock.TRAVEL = given ~= nil and given >= 0
  if clock.TRAVEL then
    clock.NOW = given
    return
  end
  clock.NOW = values.now()
  if given and clock.NOW + given > 0 then
    return redis.error_reply('LATE the request came after its caller had given it up: nothing is changed')
  end
end
