-- What the scripts share that take a running task from its worker.

-- Ends the lease of a running task, whose settle is refused from now on. What was to replace it after that lease takes
-- its place at once, for that was acknowledged. Answers the record that stands there then.
function force.take_away(sid, r)
  call('ZREM', shard.LEASED, sid)
  leases.count_running({ [tenants.tenant_of(sid)] = -1 }, 0)
  record.remember(r, fields.RAN_TAKEN, '')
  if r.target then
    places.free_place(sid, r.target)
    leases.end_delivery(r)
  end
  r.last = 0
  local successor = record.has_successor(r) and history.succeed(sid, r)
  if successor then
    successor.fence, successor.nonce, successor.trigger = 0, layout.NO_NONCE, 0
  end
  return successor or r
end
