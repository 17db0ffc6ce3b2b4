"""Measurements, each beside the machine's own limits in the same run: `make bench`."""
