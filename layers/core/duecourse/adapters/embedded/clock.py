"""The time of a store that is in this process."""

import time


class SystemClock:
    """This machine's time."""

    def now(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000
