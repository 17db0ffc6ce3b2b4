-- Finds leases of claims whose reply was lost, by the nonces that their caller chose, and begins their time anew.
--
-- KEYS    as in modules/shard.lua, without the due sets
-- ARGV    those of shard, then: nonces (8 bytes each), ms since the first of those claims was sent, then how long the
--         leases of a claim may be (ms, each once), the first where the queue has none of its own
-- RETURNS what claim.lua does, as a claim that leased these
--
-- Its first write is a ZREM: a script that begins so runs to its end where memory is short.

local MOST = 2000 -- leases that one step looks at
local SLACK = 1000 -- ms by which the caller's clock and the server's may differ over that time
local nonces, age = ARGV[shard.FIRST], tonumber(ARGV[shard.FIRST + 1]) + SLACK
local lease_ms = shard.LEASE or tonumber(ARGV[shard.FIRST + 2])
local wanted, handed, payloads, leased = {}, {}, {}, {}
call('ZREM', shard.LEASED, '')
for at = 1, #nonces, 8 do
  wanted[sub(nonces, at, at + 7)] = true
end

-- Hands out a lease whose time begins anew; one whose payload is gone it leaves.
local function regain(sid, data, length_ms)
  local field = bodies.of(sid, data)
  local payload = field and call('HGET', shard.TASKS, field)
  if field and not payload then
    return
  end
  values.push(handed, sid, data)
  values.push(leased, values.text_of(shard.NOW + length_ms), sid)
  if payload then
    values.push(payloads, #handed / 2, payload)
  end
end

-- A claim's leases end as long after it as they last: so no others are looked at than those of that time.
local function look(length_ms)
  local first, last = shard.NOW - age + length_ms, shard.NOW + length_ms
  local sids = call('ZRANGEBYSCORE', shard.LEASED, values.text_of(first), values.text_of(last), 'LIMIT', 0, MOST)
  local from = 1
  while from <= #sids and shard.weight < record.BYTES do
    local some = { unpack(sids, from, math.min(from - 1 + record.piece(from - 1), #sids)) }
    for i, data in ipairs(call('HMGET', shard.TASKS, unpack(some))) do
      local letter = data and byte(data, -1)
      local nonce = (letter == fields.BEGUN or letter == fields.HANDED)
        and sub(data, fields.TOKEN_TO - 7, fields.TOKEN_TO)
      shard.weight = shard.weight + #(data or '')
      if nonce and wanted[nonce] then
        wanted[nonce] = nil
        regain(some[i], data, length_ms)
      end
    end
    from = from + #some
  end
end

look(lease_ms)
for at = shard.FIRST + 3, #ARGV do
  look(tonumber(ARGV[at]))
end
values.in_pieces('ZADD', shard.LEASED, leased)
return {
  shard.NOW, bell.hang(false), 0, 1, {}, handed, lease_ms, shard.PRIORITY, 0, {}, 0, payloads, false,
}
