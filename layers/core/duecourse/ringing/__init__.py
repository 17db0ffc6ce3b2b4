"""Bells and ticks: how a due task is noticed in time, by a key that expires or by a schedule of each minute."""
