-- Tells the kinds of the first tasks that come due within a time; changes nothing.
--
-- KEYS    as in included/prelude.lua
-- ARGV    prelude's (of tenants those whose heads come due), then: within (ms)
-- RETURNS {kind...}, each once

--include prelude fresh record

local LOOK, BYTES = 8, 1000000
local until_at = text_of(NOW + tonumber(ARGV[FIRST]))

local kinds, seen, bytes = {}, {}, 0
for _, due in pairs(DUE) do
  for _, sid in ipairs(call('ZRANGEBYSCORE', due, '-inf', until_at, 'LIMIT', '0', text_of(LOOK))) do
    local data = bytes < BYTES and call('HGET', TASKS, sid)
    local r = data and open(data)
    bytes = bytes + #(data or '')
    if r then
      local by_end, kind_end = ends_of(r.rest)
      local kind = string.sub(r.rest, by_end + 1, kind_end)
      if not seen[kind] then
        seen[kind] = true
        kinds[#kinds + 1] = kind
      end
    end
  end
end
return kinds
