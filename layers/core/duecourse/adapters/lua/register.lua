-- Puts a shard on record, unless its queue stands there with another number of shards.
--
-- KEYS    1 <namespace>:shards, a set of "<queue>/<number>/<count>"
-- ARGV    1 queue   2 the shard's number   3 how many shards the queue has
-- RETURNS 0, or how many the queue has on record

for _, member in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local queue, count = string.match(member, '^(.*)/%d+/(%d+)$')
  if queue == ARGV[1] and count ~= ARGV[3] then
    return tonumber(count)
  end
end
redis.call('SADD', KEYS[1], table.concat(ARGV, '/'))
return 0
