-- Names a tenant's schedules, those after a place in the order of when they fire; changes nothing.
--
-- KEYS    as in modules/shard.lua, with the due set of schedules alone
-- ARGV    those of shard and walk, whose section is due, then: the tenant
-- RETURNS {now, how far it looked: at, id, or nothing where that is all, {stored id...}}

require 'walk'

local own, names = '*/' .. ARGV[shard.FIRST] .. '/', {}
local flat, reached = walk.entries()
for i = 1, #flat, 2 do
  if sub(flat[i], 1, #own) == own then
    names[#names + 1] = flat[i]
  end
end
return { shard.NOW, reached or {}, names }
