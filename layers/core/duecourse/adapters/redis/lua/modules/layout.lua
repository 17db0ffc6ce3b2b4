-- What the scripts that read or make records share: their layout (adapters/redis/record.py), a fresh one, its place in
-- a group.

local pack = struct.pack

local VERSION = 4
local FRONT = '>BBBBBI4I2I6I6I6I6I6I6c8'
local FRONT_SIZE = 55
local NO_NONCE = '\0\0\0\0\0\0\0\0'
local COUNTS = 16 -- in the flags, of a deadline that counts from the due time

local SCHEDULED = 115 -- s
local LEASE = 108 -- l
local FINISHED = 100 -- d
local DIED = 120 -- x
local CANCELLED = 99 -- c

-- The record of a task that is scheduled and never ran; `came` says how (0 created, 2 replaced, 3 debounced; COUNTS / 4
-- more where its deadline counts from the due time).
local function fresh_record(came, due, created, generation, deadline, rest)
  return pack(FRONT, VERSION, came * 4, 0, 0, 0, 0, 1, due, created, generation, deadline, 0, 0,
    NO_NONCE) .. rest .. 's'
end

local function group_member(sid, group)
  return string.match(sid, '^[^/]*') .. '/' .. group .. '\0' .. sid
end

return {
  VERSION = VERSION,
  FRONT = FRONT,
  FRONT_SIZE = FRONT_SIZE,
  NO_NONCE = NO_NONCE,
  COUNTS = COUNTS,
  SCHEDULED = SCHEDULED,
  LEASE = LEASE,
  FINISHED = FINISHED,
  DIED = DIED,
  CANCELLED = CANCELLED,
  fresh_record = fresh_record,
  group_member = group_member,
}
