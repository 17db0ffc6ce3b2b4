"""The demo: four stories with real parts and real invocations, checked as they are told."""
