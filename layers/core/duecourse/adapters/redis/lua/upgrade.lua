-- Raises the version in which a shard's records are written, unless earlier callers were there meanwhile; of one that
-- was raised before, it rewrites what is older, a bounded step at a time.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: "" to look only; how many fences earlier callers had drawn when it was asked before, to
--         raise it; "rewrite" for a step, "again" for the first of a pass
-- RETURNS {now, bell_at, version, how many fences earlier callers have drawn, how many records were rewritten, 1 where
--         more may be left}

local what = ARGV[shard.FIRST]
local others, done, left = 0, 0, false
if shard.LAYOUT < fields.NEWEST then
  others = versions.drawn_by_others()
  if what == values.text_of(others) then
    versions.raise()
  end
elseif what == 'again' or what == 'rewrite' then
  if what == 'again' then
    versions.look_again()
  end
  done, left = versions.rewrite()
end
return { shard.NOW, bell.hang(false), shard.LAYOUT, others, done, left and 1 or 0 }
