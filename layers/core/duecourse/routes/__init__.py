"""The HTTP API: each route parses, makes one call of the engine, and shapes the answer."""
