"""What the engine and the bridge need of the world: one contract a file; the implementations stand in `adapters`."""
