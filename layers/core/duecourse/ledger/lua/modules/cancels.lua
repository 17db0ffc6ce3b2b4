-- What the scripts share that cancel tasks.

-- Cancels a scheduled task, or takes a running one from its worker: what waits to replace that is the task that is
-- cancelled then.
function cancels.cancel(sid, r, by)
  if r.status == fields.LEASE then
    r = force.take_away(sid, r)
  else
    call('ZREM', shard.DUE[tenants.tenant_of(sid)], sid)
  end
  history.note(r, fields.DID_CANCELLED, by, r.due, 0)
  r.status, r.claimed, r.fence, r.nonce, r.last, r.trigger = fields.CANCELLED, 0, 0, layout.NO_NONCE, 0, 0
  record.put(sid, r)
end
