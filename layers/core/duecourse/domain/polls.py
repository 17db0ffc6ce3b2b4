"""Bounds of polls: a poll asks again and again, and neither too often nor for ever."""

from duecourse.domain.times import DAY_MS

KIND = "poll"
MIN_INTERVAL_MS = 100
"""Shortest interval that an operator can allow."""
LEAST_INTERVAL_MS = 1_000
"""Shortest interval, unless an operator allows a shorter one or asks for a longer one."""
MAX_DEADLINE_MS = 366 * DAY_MS
"""Longest time from the due time to the deadline; without one, a poll has a day (domain/task.py)."""
