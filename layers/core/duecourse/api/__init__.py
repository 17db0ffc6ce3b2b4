"""Frame of the HTTP API and of events, without any capability."""
