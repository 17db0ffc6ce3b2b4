-- What the scripts that read or make records share: a new record (ledger/layout.py), the lease behind it, its place
-- in a group.

local NO_NONCE = '\0\0\0\0\0\0\0\0'

-- The record of a task that is scheduled and never ran; `flags` say how it came (ledger/layout.py).
function layout.new_record(flags, due, created, generation, deadline, rest)
  return pack(fields.FRONT_FORMAT, fields.VERSION, flags, 0, 0, 0, 0, 1, due, created, generation, deadline, 0, 0,
    NO_NONCE) .. rest .. 's'
end

-- A lease behind a record, `fields.BEGUN_FORMAT` (layout.py) in two halves: run and fence, then what is the same for
-- all that a script leases. To make the record's front anew would cost twice as much.
local LEASE_FRONT = '>I4I6'

function layout.lease_end(nonce, now, trigger)
  return nonce .. pack('>I6', now) .. trigger .. 'L'
end

function layout.group_member(sid, group)
  return match(sid, '^[^/]*') .. '/' .. group .. '\0' .. sid
end
