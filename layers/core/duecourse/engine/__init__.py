"""The use-cases: add, drain (claim, run, settle until nothing is due), sweep, cancel, move, replay, remind."""
