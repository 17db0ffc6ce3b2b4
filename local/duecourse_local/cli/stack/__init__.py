"""Commands of the stack on this machine."""
