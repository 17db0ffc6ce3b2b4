"""Queues: their settings, their numbers, and what may be done to all tasks of one."""
