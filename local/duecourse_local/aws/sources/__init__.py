"""Event sources: queues whose messages the harness feeds to functions, as Lambda's pollers do."""
