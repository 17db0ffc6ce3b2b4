"""The world as the ports want it: Redis, ordered key-value maps, AWS, HTTP."""
