-- Reads a tenant's tasks in one section of the order, those after a place in it; changes nothing.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard (of tenants the one) and walk, then: limit; of a group, the tasks that are looked at: stored
--         id and at of each, in order
-- RETURNS {now, how far it looked: at, id ("" before all of that instant), or nothing where that is all,
--         {stored id, at, record, its payload where that stands apart...}}

require 'walk'

local MOST = 1000000 -- bytes
local limit = tonumber(ARGV[shard.FIRST])
local found = {}

-- Whether there is room for more after this one.
local function take(sid, score, data)
  local r = record.open(data)
  if r and walk.fits(sid, r, score) then
    local field = bodies.of(sid, data)
    local payload = field and call('HGET', shard.TASKS, field) or ''
    shard.weight = shard.weight + #payload
    values.push(found, sid, score)
    values.push(found, data, payload)
  end
  return #found < 4 * limit
end

-- Of the tasks that the caller names, those that stand where it saw them, {stored id, at...}.
local function named()
  local flat, sids, at = {}, {}, {}
  for i = shard.FIRST + 1, #ARGV, 2 do
    sids[#sids + 1], at[ARGV[i]] = ARGV[i], tonumber(ARGV[i + 1])
  end
  local here = walk.here(sids)
  for i = 1, #here, 2 do
    if tonumber(here[i + 1]) == at[here[i]] then
      values.push(flat, here[i], here[i + 1])
    end
  end
  return flat
end

local flat, reached
if walk.group == '' then
  flat, reached = walk.entries()
else
  flat = named()
end
return { shard.NOW, walk.each(flat, MOST, take) or reached or {}, found }
