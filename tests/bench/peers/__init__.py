"""Rivals beside duecourse: the same payload, a due time an hour off, one process each, in turn, in one run."""
