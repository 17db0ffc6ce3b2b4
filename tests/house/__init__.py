"""Figures of the core's structure, counted from the code itself, to be compared over months."""
