"""The command `duecourse`."""

import importlib.util
import signal
import sys


def main() -> None:
    """Run the command line."""
    # Importing takes a second: a Ctrl-C meanwhile ends the process, without a trace of where it was.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if importlib.util.find_spec("typer") is None:
        sys.exit("duecourse: the command needs more than the library: pip install 'duecourse[local]'")
    from .cli.app import app

    signal.signal(signal.SIGINT, signal.default_int_handler)
    app(prog_name="duecourse")


if __name__ == "__main__":
    main()
