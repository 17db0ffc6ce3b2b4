"""Reminders: messages to people before something begins."""
