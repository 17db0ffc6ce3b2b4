"""The check of the texts that users read, against the rules in `rules.py`: part of `make check`."""
