"""Tasks: add, show, explain, move, replay, cancel."""
