-- What the scripts that read or make records share: their layout (ledger/layout.py), a fresh one, its place in
-- a group.

local NO_NONCE = '\0\0\0\0\0\0\0\0'

-- The record of a task that is scheduled and never ran; `flags` say how it came (ledger/layout.py).
function layout.fresh_record(flags, due, created, generation, deadline, rest)
  return pack(fields.FRONT_FORMAT, fields.VERSION, flags, 0, 0, 0, 0, 1, due, created, generation, deadline, 0, 0,
    NO_NONCE) .. rest .. 's'
end

function layout.group_member(sid, group)
  return match(sid, '^[^/]*') .. '/' .. group .. '\0' .. sid
end
