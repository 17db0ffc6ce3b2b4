"""Backup of a ledger as JSON lines, and its restore."""
