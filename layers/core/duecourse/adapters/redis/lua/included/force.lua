-- What the scripts share that take a running task from its worker.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's
-- RETURNS nothing

--exports take_away

-- Ends the lease of a running task, whose settle is refused from now on. What was to replace it after that lease takes its
-- place at once, for that was acknowledged. Answers the record that stands there then.
function take_away(sid, r)
  call('ZREM', LEASED, sid)
  count_running(tenant_of(sid), -1)
  remember(r, TAKEN, '')
  if r.target then
    free_place(sid, r.target)
    end_delivery(r)
  end
  r.last = 0
  local successor = has_successor(r) and succeed(sid, r)
  if successor then
    successor.fence, successor.nonce, successor.door = 0, NO_NONCE, 0
  end
  return successor or r
end
