"""The ledger on an ordered map of bytes to bytes, for the stores that have no server."""
