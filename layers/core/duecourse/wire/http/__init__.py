"""The HTTP API: requests, answers and problems."""
