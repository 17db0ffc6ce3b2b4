"""Calls to the web, and the addresses that they may reach."""
