"""The demo: stories with real parts and real invocations, each checked as it happens."""
