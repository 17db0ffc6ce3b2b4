"""Log lines of a worker's processes, on standard error."""

import logging
import sys
import time

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s [%(process)d %(duecourse_task)s] %(name)s: %(message)s"


def log_to_stderr() -> None:
    """Log lines with the process's number and the id of the task that they are about."""
    formatter = logging.Formatter(FORMAT, "%Y-%m-%dT%H:%M:%S", defaults={"duecourse_task": "-"})
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in ("boto3", "botocore", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
