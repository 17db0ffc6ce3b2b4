"""Built-in kinds: each is built with what it needs and turns a leased task into an outcome."""
