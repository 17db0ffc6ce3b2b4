-- Values as commands take them, and lists of them.

-- A whole number as a command takes it: Redis makes text of each that it is given, in two to four times the time.
function values.text_of(number)
  return string.format('%d', number)
end

-- Runs a command over many arguments, in pieces that Lua's stack holds.
function values.in_pieces(command, key, args)
  for i = 1, #args, 4000 do
    call(command, key, unpack(args, i, math.min(i + 3999, #args)))
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
