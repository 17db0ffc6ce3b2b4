"""The values of environment variables."""
