-- Reads the errors of a tenant's dead tasks after a place in their order, in a bounded step. Changes nothing.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard (of tenants the one) and walk, then: limit
-- RETURNS {now, how far it looked: at, id ("" before all of that instant), or nothing where that is all,
--         {stored id, at, kind, error...}}

require 'walk'

local limit = tonumber(ARGV[shard.FIRST])
local found = {}

-- True if there is room for another after this one.
local function look(sid, score, data)
  local r = record.open(data)
  if r and walk.fits(sid, r, score) then
    local by_end, kind_end = record.ends_of(r.rest)
    values.push(found, sid, score)
    values.push(found, sub(r.rest, by_end + 1, kind_end), record.error_of(r))
  end
  return #found < 4 * limit
end

local flat, reached = walk.meant()
return { shard.NOW, walk.each(flat, record.BYTES, look) or reached or {}, found }
