-- Tells the kinds of the first tasks that come due within a time; changes nothing.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard (of tenants those whose heads come due), then: within (ms)
-- RETURNS {kind...}, each once

local LOOK, MOST = 8, 1000000
local until_at = values.text_of(shard.NOW + tonumber(ARGV[shard.FIRST]))

local kinds, seen, bytes = {}, {}, 0
for _, due in pairs(shard.DUE) do
  for _, sid in ipairs(call('ZRANGEBYSCORE', due, '-inf', until_at, 'LIMIT', '0', values.text_of(LOOK))) do
    local data = bytes < MOST and call('HGET', shard.TASKS, sid)
    local r = data and record.open(data)
    bytes = bytes + #(data or '')
    if r then
      local by_end, kind_end = record.ends_of(r.rest)
      local kind = sub(r.rest, by_end + 1, kind_end)
      if not seen[kind] then
        seen[kind] = true
        kinds[#kinds + 1] = kind
      end
    end
  end
end
return kinds
