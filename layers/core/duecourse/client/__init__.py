"""The clients for Python: blocking, asyncio, typed. They work on the ledger itself, without an HTTP service."""
