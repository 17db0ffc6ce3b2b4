"""The pure part: tasks, outcomes, times and backoff; no I/O, no clock, no environment."""
