"""Contracts that the engine and the bridge need, one a file; the implementations are in `adapters`."""
