"""`python -m local` in a clone: the command `duecourse`."""

import importlib.util
import sys

if importlib.util.find_spec("duecourse_local") is None:
    sys.exit("python -m local needs this folder's own Python: make setup, then .venv/bin/duecourse …")

from duecourse_local.__main__ import main

main()
