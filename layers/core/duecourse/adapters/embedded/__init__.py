"""The ledger in this process: the scripts of `lua/` over an ordered keyspace, in memory or in a folder."""
