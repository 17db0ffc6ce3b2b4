"""Schedules: tasks that come again."""
