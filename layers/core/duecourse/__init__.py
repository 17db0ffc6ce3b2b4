"""Delayed, repeated and polled tasks for AWS Lambda, on the Redis a team already runs."""
