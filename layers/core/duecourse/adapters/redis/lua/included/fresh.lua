-- What the scripts that read or make records share: their layout (adapters/redis/record.py), a fresh one, its place in a group.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's
-- RETURNS nothing

--exports pack unpack_struct FRONT FRONT_SIZE VERSION NO_NONCE COUNTS SCHEDULED LEASE FINISHED DIED CANCELLED
--exports fresh_record group_member

pack, unpack_struct = struct.pack, struct.unpack
FRONT, FRONT_SIZE = '>BBBBBI4I2I6I6I6I6I6I6c8', 55
VERSION = 4
NO_NONCE = string.rep('\0', 8)
COUNTS = 16 -- in the flags, of a deadline that counts from the due time
SCHEDULED, LEASE, FINISHED, DIED, CANCELLED = 115, 108, 100, 120, 99 -- s l d x c

-- The record of a task that is scheduled and never ran; `came` says how (0 created, 2 replaced, 3 debounced; COUNTS / 4 more
-- where its deadline counts from the due time).
function fresh_record(came, due, created, generation, deadline, rest)
  return pack(FRONT, VERSION, came * 4, 0, 0, 0, 0, 1, due, created, generation, deadline, 0, 0, NO_NONCE) .. rest .. 's'
end

function group_member(sid, group)
  return string.match(sid, '^[^/]*') .. '/' .. group .. '\0' .. sid
end
