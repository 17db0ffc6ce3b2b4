"""Commands of a ledger, on this machine or deployed."""
