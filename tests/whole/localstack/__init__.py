"""LocalStack without a container engine: its pins, our plugin for it, and what starts it."""
