-- Takes in the history of another shard, which is about to be none.
--
-- KEYS    as in modules/shard.lua
-- ARGV    those of shard, then: its lines of minutes, of hours and of days, and the numbers of its minute, "" for none
-- RETURNS {now, bell_at}

require 'lines'

lines.take_in({ unpack(ARGV, shard.FIRST, shard.FIRST + 2) }, ARGV[shard.FIRST + 3])
return { shard.NOW, bell.hang(false) }
