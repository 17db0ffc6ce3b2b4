-- Puts tasks back where they belong: another program deleted a key, the server evicted it, or it rejected a script half
-- way.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: lease ms where the queue has none of its own, what to count anew (0 nothing, 1 all, 2
--         all but leases; 3 nothing, and sweeps are to look at each task), then the stored ids. Or instead of a number
--         "<fence> <how many leases>", for which the caller has counted, then fields of meta and their values, "" for
--         none
-- RETURNS {now, bell_at, how many entries were put right; -1 where the shard has other leases by now, and nothing is
--         written}
--
-- What a record tells is put back. When a task ended, or until when it is leased, it does not tell: that counts from
-- now, so that a worker who is still there can settle. Counted anew are the leases of each tenant, and by sweeps its
-- pending bytes.

local lease_ms = shard.LEASE or tonumber(ARGV[shard.FIRST])
local back = 0

local function count_running()
  local running, set, gone = {}, {}, {}
  for _, sid in ipairs(call('ZRANGE', shard.LEASED, 0, -1)) do
    local field = 'running:' .. tenants.tenant_of(sid)
    running[field] = (running[field] or 0) + 1
  end
  for _, field in ipairs(call('HKEYS', shard.META)) do
    if sub(field, 1, 8) == 'running:' and not running[field] then
      gone[#gone + 1] = field
    end
  end
  for field, count in pairs(running) do
    values.push(set, field, values.text_of(count))
  end
  values.in_pieces('HDEL', shard.META, gone)
  values.in_pieces('HSET', shard.META, set)
end

-- Writes down what the caller has counted. Fences are drawn by each lease, and each end makes one less: where both are
-- the same, so are the leases.
local function take_counts(fence, leased)
  if shard.FENCE ~= tonumber(fence) or call('ZCARD', shard.LEASED) ~= tonumber(leased) then
    back = -1
    return
  end
  for at = shard.FIRST + 2, #ARGV, 2 do
    if ARGV[at + 1] == '' then
      call('HDEL', shard.META, ARGV[at])
    else
      call('HSET', shard.META, ARGV[at], ARGV[at + 1])
    end
  end
end

local fence, leased = match(ARGV[shard.FIRST + 1], '^(%d+) (%d+)$')
if fence then
  call('ZREM', shard.LEASED, '')
  take_counts(fence, leased)
  return { shard.NOW, bell.hang(false), back }
end

if ARGV[shard.FIRST + 1] == '3' then
  misplaced.ask()
elseif ARGV[shard.FIRST + 1] ~= '0' then
  call('ZREM', shard.LEASED, '')
  if ARGV[shard.FIRST + 1] == '1' then
    count_running()
  end
  if tenant_bytes.are_counted() then
    call('HSET', shard.META, 'quotas', '-')
  end
  call('HSET', shard.META, 'rewrite', '0')
end

for at = shard.FIRST + 2, #ARGV do
  local r = record.open(call('HGET', shard.TASKS, ARGV[at]))
  if r then
    back = back + misplaced.put_right(ARGV[at], r, lease_ms)
  end
end
for tenant, due in pairs(shard.DUE) do
  local is_known = call('ZSCORE', shard.RING, tenant) or call('ZSCORE', shard.HEADS, tenant)
    or call('ZSCORE', shard.PARKED, tenant)
  if not is_known and call('ZCOUNT', due, '-inf', '(' .. values.text_of(fields.NEVER)) > 0 then
    back = back + 1
  end
  tenants.rehead(tenant)
end
return { shard.NOW, bell.hang(back > 0), back }
