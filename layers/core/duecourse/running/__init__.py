"""Running of due tasks: claim, handle, settle."""
