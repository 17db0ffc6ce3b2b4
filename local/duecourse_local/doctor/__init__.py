"""Examination of a ledger and its servers: what is wrong, and what mends it."""
