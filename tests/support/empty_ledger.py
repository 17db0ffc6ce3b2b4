"""Fields that stay of an emptied ledger, and why."""

STAY = {
    "fence": "no fence comes twice",
    "clock": "the clock of these tests travels",
    "layout": "the version of the records, with the fence",
    "dead_swept": "since when dead tasks are forgotten",
    "idle": "since when the queue is empty, or that it was when a sweep last looked",
    "set_by": "whose change the settings are, for a request that is sent again",
    "numbers": "those of the current minute, until the first script of another",
    "late_slot": "the newest of 13 slots of lateness, which are taken again each hour",
    "lapsed": "runs without a settle in at most 13 slots, which the next count forgets",
    "busy:*": "one of each function and kind that began: as many as are deployed, forgotten with the queue",
    "each:*": "one of each function that has no time for ten tasks: forgotten with the queue",
    "fits:*": "one of each function that was busy, until it has all its places again: forgotten with the queue",
}
"""Fields of meta that a ledger keeps once it is empty, each with the reason."""
