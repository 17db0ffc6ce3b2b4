-- Values as commands take them, and lists of them.

-- A whole number as a command takes it: Redis makes text of each that it is given, in two to four times the time.
function values.text_of(number)
  return string.format('%d', number)
end

-- A request can be held up on its way, in a connection that is closed by now. It may reach the server when its caller
-- has given up, and has done something else since. So each script that changes anything compares its clock.
local LATE = 'LATE the request came after its caller had given it up: nothing is changed'

-- The time in epoch milliseconds, by a clock (modules/shard.lua).
function values.now(clock)
  local time = clock < '=' and call('TIME')
  return time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(sub(clock, 2))
end

-- Runs a command over many arguments, in pieces that Lua's stack holds.
function values.in_pieces(command, key, args)
  for i = 1, #args, 4000 do
    call(command, key, unpack(args, i, math.min(i + 3999, #args)))
  end
end

local FEW = 32
local LONG = '_________________________________________________________________'

-- Adds {score, member...} to a zset. Redis looks through all of a small one for each; so one that gets more than a few
-- is made an index first, by a member of over 64 bytes.
function values.add_members(key, members)
  if #members > FEW then
    call('ZADD', key, '0', LONG)
  end
  values.in_pieces('ZADD', key, members)
  if #members > FEW then
    call('ZREM', key, LONG)
  end
end

function values.push(list, a, b)
  local n = #list
  list[n + 1] = a
  list[n + 2] = b
end

-- An instant in ARGV: "+<ms>" counts from `from`, else epoch milliseconds.
function values.instant(text, from)
  if byte(text, 1) == 43 then
    return from + tonumber(sub(text, 2))
  end
  return tonumber(text)
end
