"""Services of AWS: invocations, queues, messages to people, results."""
