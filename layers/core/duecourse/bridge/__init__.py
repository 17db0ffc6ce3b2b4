"""The bridge: one small process that turns the bells of the ledger into invocations, to the millisecond."""

from duecourse.ringing.bridge import Bridge, Stats

__all__ = ["Bridge", "Stats"]
