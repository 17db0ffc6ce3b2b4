"""Nominal times of schedules: elapsed time, cron and RFC 5545, by the time zones of the tzdata package."""
