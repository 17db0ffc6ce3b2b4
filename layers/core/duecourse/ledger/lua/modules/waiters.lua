-- Ends of tasks for those who wait: a waiter writes into the shard's meta until when it listens, and only until then
-- are ends published.

-- Publishes the ends of tasks, {anything, stored id...}, where anybody waits in this shard.
function waiters.publish(ended)
  if #ended == 0 or tonumber(shard.AWAITED) <= shard.NOW then
    return
  end
  local namespace, queue = match(shard.HEAD_CHANNEL, '^(.-):{(.*)/%d+}:head$')
  local sids = {}
  for i = 2, #ended, 2 do
    sids[#sids + 1] = ended[i]
  end
  -- A login may have been made before there was this channel: then who waits looks by itself, and the task ends.
  redis.pcall('PUBLISH', namespace .. ':ended', queue .. ' ' .. table.concat(sids, ' '))
end
