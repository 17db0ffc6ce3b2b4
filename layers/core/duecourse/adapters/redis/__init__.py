"""The ledger on Redis: a Lua script for each verb, in `lua/`, and what calls them."""
