"""Other libraries beside duecourse: the same payload, one process each, in turn, in one run."""
