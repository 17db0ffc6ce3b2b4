"""The demo: stories with real parts and real invocations, checked as they are told."""
