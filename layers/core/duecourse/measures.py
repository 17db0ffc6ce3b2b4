"""The figures of a function: each call prints a line that CloudWatch makes metrics of."""

import os
import sys
import time
from collections.abc import Mapping

from duecourse.domain.figures import NAMESPACE, SERVICE, embedded


def measure(figures: Mapping[str, float]) -> None:
    """Print figures by their metrics' names, at once."""
    service = os.environ.get(SERVICE) or NAMESPACE
    sys.stdout.write(embedded(figures, service=service, at=round(time.time() * 1000)) + "\n")
    sys.stdout.flush()
