-- Reads tasks whose payloads stand apart, each with its payload; changes nothing. Of two reads the second would miss
-- the payload of a task that was replaced in between.
--
-- KEYS    as in modules/shard.lua, without the due sets
-- ARGV    those of shard, then the stored ids
-- RETURNS {{record, end of its lease, payload}...}, nil for what is not there; fewer than ids where its bytes ran out

local found = {}

for at = shard.FIRST, #ARGV do
  if shard.weight >= record.BYTES then
    break
  end
  local sid = ARGV[at]
  local data = call('HGET', shard.TASKS, sid)
  local field = data and bodies.of(sid, data)
  local payload = field and call('HGET', shard.TASKS, field) or false
  shard.weight = shard.weight + #(data or '') + #(payload or '')
  found[#found + 1] = { data, call('ZSCORE', shard.LEASED, sid), payload }
end
return found
