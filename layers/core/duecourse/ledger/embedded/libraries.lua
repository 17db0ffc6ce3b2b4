-- The libraries that Redis gives its scripts, as far as ours use them; in this process Lua comes with its own alone.
--
-- struct  big-endian formats of B, I<bytes> and c<bytes> (https://redis.io/docs/latest/develop/programmability/lua-api/);
--         for each a function is made at its first use
-- cjson   encode, of texts and whole numbers
-- bit     band and bor, of numbers that are not negative
-- RETURNS the three by name; calling and parts, by which lua.py crosses from Lua to Python and back

local floor, format = math.floor, string.format

-- The parts of a format: {{letter, bytes, where it begins (from 0)}...} and how many bytes they are together.
local function parts_of(of)
  local parts, at = {}, 0
  for letter, size in string.gmatch(string.sub(of, 2), '(%a)(%d*)') do
    size = tonumber(size) or 1
    parts[#parts + 1] = { letter, size, at }
    at = at + size
  end
  return parts, at
end

local function names(prefix, count)
  local found = {}
  for i = 1, count do
    found[i] = prefix .. i
  end
  return table.concat(found, ',')
end

local function made(source, ...)
  return assert(loadstring(source))(...)
end

local function packer(of)
  local parts, terms, bytes = parts_of(of), {}, {}
  local function end_bytes()
    if #bytes > 0 then
      terms[#terms + 1], bytes = 'char(' .. table.concat(bytes, ',') .. ')', {}
    end
  end
  for i, part in ipairs(parts) do
    if part[1] == 'c' then
      end_bytes()
      terms[#terms + 1] = format('sub(a%d,1,%d)', i, part[2])
    else
      for n = part[2] - 1, 0, -1 do
        bytes[#bytes + 1] = n == 0 and format('a%d%%256', i) or format('floor(a%d/%.0f)%%256', i, 256 ^ n)
      end
    end
  end
  end_bytes()
  return made('local char,sub,floor=string.char,string.sub,math.floor return function(' .. names('a', #parts)
    .. ') return ' .. table.concat(terms, '..') .. ' end')
end

local function unpacker(of)
  local parts, size = parts_of(of)
  local terms = {}
  for i, part in ipairs(parts) do
    local letter, length, at = part[1], part[2], part[3]
    if letter == 'c' then
      terms[i] = format('sub(s,at+%d,at+%d)', at, at + length - 1)
    else
      local bytes = {}
      for n = 1, length do
        bytes[n] = n == length and 'b' .. at + n or format('b%d*%.0f', at + n, 256 ^ (length - n))
      end
      terms[i] = table.concat(bytes, '+')
    end
  end
  return made('local byte,sub=string.byte,string.sub return function(s,at) at=at or 1 if #s<at+' .. size - 1
    .. ' then error("the text is too short") end local ' .. names('b', size) .. '=byte(s,at,at+' .. size - 1
    .. ') return ' .. table.concat(terms, ',') .. ',at+' .. size .. ' end')
end

local function by_format(make)
  local known = {}
  return function(of, ...)
    local run = known[of]
    if not run then
      run = make(of)
      known[of] = run
    end
    return run(...)
  end
end

local ESCAPES = { ['"'] = '\\"', ['\\'] = '\\\\', ['/'] = '\\/', ['\b'] = '\\b', ['\f'] = '\\f', ['\n'] = '\\n',
  ['\r'] = '\\r', ['\t'] = '\\t' }

local function escape(character)
  return ESCAPES[character] or format('\\u%04x', string.byte(character))
end

local function encode(value)
  return type(value) == 'string' and '"' .. string.gsub(value, '[%c"\\/]', escape) .. '"' or format('%d', value)
end

-- The sum of the powers of two whose bits are in at least `least` of both.
local function bits(least)
  return function(a, b)
    local sum, power = 0, 1
    while a + b > 0 do
      local one, other = a % 2, b % 2
      if one + other >= least then
        sum = sum + power
      end
      a, b, power = floor(a / 2), floor(b / 2), power * 2
    end
    return sum
  end
end

-- What `redis.call` is, of a function of Python that answers a value, or true and the values of a list.
local function calling(run)
  local function answered(first, ...)
    return first == true and { ... } or first
  end
  return function(...)
    return answered(run(...))
  end
end

-- The values of a list, behind one more: Python gets several values as a tuple, and one as it is.
local function parts(list)
  return true, unpack(list)
end

return { struct = { pack = by_format(packer), unpack = by_format(unpacker) }, cjson = { encode = encode },
  bit = { band = bits(2), bor = bits(1) }, calling = calling, parts = parts }
