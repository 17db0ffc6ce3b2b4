-- Announces the ends of tasks: to the schedules whose occurrences they are, and to who waits for any. A verb requires
-- it where there is anything to announce, for to make functions is what a script spends its time on.

-- Announces the tasks of two lists, each as in shard.ended.
function announce.ends(ended, more)
  if shard.occurred then
    progress.tell(shard.occurred)
  end
  if shard.AWAITED then
    waiters.publish(ended or {})
    waiters.publish(more or {})
  end
end
