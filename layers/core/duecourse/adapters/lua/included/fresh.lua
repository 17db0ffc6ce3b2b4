-- What the scripts that read or make records share: their layout (adapters/record.py), a fresh one, its place in a group.
--
-- KEYS    as in prelude.lua
-- ARGV    prelude's
-- RETURNS nothing

local pack, unpack_struct = struct.pack, struct.unpack
local FRONT, FRONT_SIZE = '>BBBBBI4I2I6I6I6I6I6I6c8', 55
local VERSION = 4
local NO_NONCE = string.rep('\0', 8)
local SCHEDULED, LEASE, FINISHED, DIED, CANCELLED = 115, 108, 100, 120, 99 -- s l d x c

-- The record of a task that is scheduled and never ran; `came` says how (0 created, 2 replaced, 3 debounced).
local function fresh_record(came, due, created, generation, deadline, rest)
  return pack(FRONT, VERSION, came * 4, 0, 0, 0, 0, 1, due, created, generation, deadline, 0, 0, NO_NONCE) .. rest .. 's'
end

local function group_member(sid, group)
  return tenant_of(sid) .. '/' .. group .. '\0' .. sid
end
