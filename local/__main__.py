"""`python -m local`."""

import importlib.util
import signal
import sys

# Importing takes a second: a Ctrl-C meanwhile ends the process, without a trace of where it was.
signal.signal(signal.SIGINT, signal.SIG_DFL)

if importlib.util.find_spec("typer") is None:
    sys.exit("python -m local needs this folder's own Python: make setup, then .venv/bin/python -m local …")

from .cli.app import app  # noqa: E402

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    app(prog_name="python -m local")
