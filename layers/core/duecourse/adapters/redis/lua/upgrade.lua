-- Raises the version in which a shard's records are written, unless earlier callers were there meanwhile; of one that
-- was raised before, it rewrites what is older, a bounded step at a time.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: how many fences earlier callers had drawn when it was asked before, "" to look only
-- RETURNS {now, bell_at, version, how many fences earlier callers have drawn, how many records were rewritten, 1 where
--         more may be left}

local others, done, left = 0, 0, true
if shard.LAYOUT < fields.NEWEST then
  others = versions.drawn_by_others()
  if ARGV[shard.FIRST] == tostring(others) then
    versions.raise()
  end
else
  done, left = versions.rewrite()
end
return { shard.NOW, bell.hang(false), shard.LAYOUT, others, done, left and 1 or 0 }
