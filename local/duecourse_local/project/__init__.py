"""Projects: the bundle that the wheel carries, and the folder that a command works in."""
