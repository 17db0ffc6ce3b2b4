"""Outgoing calls: the hosts they may reach, the credentials they carry, and seals of credentials in tasks."""
