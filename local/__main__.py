"""`python -m local`."""

import signal

# Importing takes a second: a Ctrl-C meanwhile ends the process, without a trace of where it was.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from local.cli import app  # noqa: E402

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    app(prog_name="python -m local")
