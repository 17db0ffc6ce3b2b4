-- What follows the ends of tasks in a script: schedules learn of those of their occurrences, and who waits of all. A verb
-- makes this where there is anything to tell, for to make functions is what a script spends its time on.

-- Tells of the tasks that ended, as in shard.ended; of each list for itself.
function ends.tell(ended, more)
  if shard.occurred then
    series.tell(shard.occurred)
  end
  if shard.AWAITED then
    waiters.publish(ended or {})
    waiters.publish(more or {})
  end
end
