"""Queries: one call of a slow API for everybody who asks the same; asked again until it is done."""
