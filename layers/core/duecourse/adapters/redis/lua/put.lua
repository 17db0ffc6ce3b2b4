-- Takes in tasks of another shard, as they are; one that is here already is overwritten with itself.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then for each task: stored id, when (due, or when it ended), packed record
-- RETURNS {now, bell_at}

local bell = require 'bell'
local layout = require 'layout'
local record = require 'record'
local shard = require 'shard'
local tenants = require 'tenants'

local call = redis.call

local PLACES = { [layout.FINISHED] = shard.DONE, [layout.CANCELLED] = shard.DONE, [layout.DIED] = shard.DEAD }

for at = shard.FIRST, #ARGV, 3 do
  local sid, r = ARGV[at], record.open(ARGV[at + 2])
  call('HSET', shard.TASKS, sid, ARGV[at + 2])
  call('ZADD', PLACES[r.status] or shard.DUE[tenants.tenant_of(sid)], ARGV[at + 1], sid)
  record.join_group(sid, r.rest)
end
for tenant in pairs(shard.DUE) do
  tenants.rehead(tenant)
end
return { shard.NOW, bell.hang(false) }
