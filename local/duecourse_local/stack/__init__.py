"""The running stack: its parts, their order, their options."""
