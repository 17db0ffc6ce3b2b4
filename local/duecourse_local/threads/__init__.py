"""The way without a server: functions as threads of the harness's own process, around a store that only it has open."""

SCHEMES = ("memory://", "leveldb://")
"""The stores that one process at a time has open."""
