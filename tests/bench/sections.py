"""The sections of docs/benchmarks.md: the heading, the text that explains the reading, and the work of each."""

from collections.abc import Mapping

from tests.bench import first_call, first_line, lateness, ledger, schedules, scripts, slow_target, travel, users
from tests.bench.peers import rows
from tests.bench.stage import Section, at_both, at_one

PEERS: Mapping[str, Section] = {
    "client": Section(
        "Adds, beside other libraries",
        """\
Each library adds tasks of 120 bytes, due in an hour, by one process over one connection. A no-op is an empty
`EVALSHA` by redis-py: no add by redis-py can be faster. Celery and arq have no add of many at once.""",
        rows.adds,
    ),
    "drain": Section(
        "A worker, beside other libraries",
        """\
One worker process runs tasks that do nothing. A drain is of tasks that wait when the worker starts; its first
quarter is for warming. duecourse and BullMQ get as many tasks as they do in 2.4 s, 20,000 at most, and the others
as many as in 0.8 s.

BullMQ is measured at 1, 16 and 100 tasks at a time, and keeps completed jobs as duecourse does. The second row has
its best. The others are at the best of the settings that their documents give. Celery keeps nothing of a task that
is done.

A claim takes dozens of tasks in one script, and a settle ends as many. BullMQ runs a script for each job. With a
handler of 10 ms or more, both are bound by the number at a time.""",
        rows.drains,
    ),
    "late": Section(
        "Lateness of a worker, beside other libraries",
        """\
200 tasks a second come due beside others that are due in an hour. Lateness is the time from the due time to the
first line of the handler. The workers of docket and arq look each 5 ms, not each 250 and 500 as by default. Celery
and arq have 20,000 pending tasks, for adding more takes them minutes. A ratio below 1 is better here.""",
        rows.lates,
    ),
    "crash": Section(
        "A worker that is killed",
        """\
A worker runs 100 tasks, is killed with `kill -9`, and another one starts at once. The figure is the time from the
kill until all 100 are done. BullMQ has its default lock of 30 s, and the others a lease of 30 s. A ratio below 1 is
better here.""",
        rows.crashes,
    ),
}

OWN: Mapping[str, Section] = {
    "users": Section(
        "As users call it",
        """\
The client adds one by one, many at once and from threads. The HTTP API is called through the local stack, whose
gateway takes most of that time; Lambda replaces it.""",
        at_both(users.figures),
    ),
    "ledger": Section(
        "The store",
        """\
A no-op is an empty `EVALSHA` by redis-py, and a pair is a pipelined `ZADD` and `HSET`: the least that a task costs.
Claims and settles by the dozen need few round trips, so distance takes less from them.""",
        at_both(ledger.figures),
    ),
    "lateness": Section(
        "Lateness by the bridge and by lingering ticks",
        """\
1,000 tasks come due at random instants of five seconds, and the time until each is claimed is measured. No task is
claimed before its due time. A machine that stalls adds its stalls.""",
        at_both(lateness.figures),
    ),
    "schedules": Section(
        "Schedules",
        """\
An occurrence takes three round trips where a task takes one: a claim, the firing, and a claim. The answer to an add
has the next ten times in the schedule's zone, which takes longer than the add itself.""",
        at_one(schedules.figures),
    ),
    "scripts": Section(
        "The longest script",
        """\
The ledger is filled with tasks of many tenants, some as large as a task may be. Every verb runs, and Redis names
the script that kept it longest.""",
        at_one(scripts.figures),
    ),
    "first_line": Section(
        "A function of your own, to its first line",
        """\
The time is from a task's due time to the first line of its function, through the bridge and the local stack. Two
invocations lie between: `on_expired`, then the function. The rest is under a millisecond. The first tasks are one
observation each.""",
        at_one(first_line.figures),
    ),
    "slow_target": Section(
        "A function that is slower than its tasks come",
        """\
The function runs one invocation at a time, and has six seconds to begin what it is handed. An invocation runs its
ten tasks at the same time. The ratio is of each fifth of the backlog, one after another.""",
        at_one(slow_target.figures),
    ),
    "first_call": Section(
        "A cold start",
        """\
The figures are time of the processor, which Lambda stretches by a function's share of a vCPU. A start of Python is
that of the interpreter alone.""",
        at_one(first_call.figures),
    ),
    "travel": Section(
        "Travelled time",
        """\
The test kit's clock is moved over many runs, in memory.""",
        at_one(travel.figures),
    ),
}

ALL: Mapping[str, Section] = {**PEERS, **OWN}
