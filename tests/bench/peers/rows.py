"""What is compared with other libraries: adds, a worker's drain, lateness, weight, and a worker that is killed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain, product
from pathlib import Path

import redis

from tests.bench.figures import AWAY, LOOPBACK, Figure, Rounds, lateness_of, quantile
from tests.bench.peers.sides import LIMIT, OURS, Arena, Side, kill, limit, sides
from tests.bench.peers.turns import BATCH
from tests.bench.server import bench_server
from tests.bench.stage import Measured, Stage

ADDS = {LOOPBACK: {"one": 1_000, "many": 6 * BATCH}, AWAY: {"one": 300, "many": 6 * BATCH}}
"""Tasks that a turn adds."""
AIMS = {
    ("one", LOOPBACK): "≥ 1.2 x",
    ("one", AWAY): "≥ 1.2 x",
    ("many", LOOPBACK): "≥ 3 x",
    ("many", AWAY): "≥ 3 x",
    ("usual", LOOPBACK): "≥ 8 x",
    ("usual", AWAY): "≥ 18 x",
    ("crowd", LOOPBACK): "≥ 2 x",
    ("crowd", AWAY): "≥ 2 x",
}
"""What is aimed at beside the nearest of them."""
NEAREST = "BullMQ"
VARIED = {OURS, NEAREST}
"""Sides of which each setting is measured; of the others, the best."""
LONGER = 3
HEAD_START_S = 0.4
HEAD_START_MS = 1_000
WARMING = (300, 1_500, 7_500)
"""Tasks of a first drain, and of further ones if that took less than half a second."""
LEAST, MOST = 300, 20_000
"""Tasks of a turn of a worker."""
RATE = 200
"""Tasks a second of those whose lateness is measured."""
CROWD = 100
"""Tasks that run when their worker is killed."""
PATIENCE_S = 80.0
"""Time that they have to be done."""

Rates = dict[tuple[str, str], list[float]]
"""A rate of each round, by the side and what it did."""


def adds(stage: Stage, only: Sequence[str] | None = None) -> Measured:
    """Tasks of 120 bytes, due in an hour, added by one process over one connection."""
    found = [limit(), *sides(stage.say, only)]
    for place, server in stage.places.items():
        with redis.Redis.from_url(stage.server.url) as client, ExitStack() as running:
            client.flushall()
            arenas = [Arena(side, server.url, client, stage.folder) for side in found]
            stage.say(f"{place}: {stage.rounds} rounds of adds")
            adders = [running.enter_context(arena.adding()) for arena in arenas]
            rates: Rates = {}
            for turn in range(stage.rounds + 1):
                for work, count in ADDS[place].items():
                    for side, adder in zip(found, adders, strict=True):
                        if work == "many" and not side.has_batches:
                            continue
                        rate = count / adder.add(work, count)
                        if turn:  # the first is for warming
                            rates.setdefault((side.name, work), []).append(rate)
        yield [*_adds_shown(place, rates)]


def _adds_shown(place: str, rates: Rates) -> Iterator[Figure]:
    names = {"one": "Client.add, one by one", "many": f"Client.add_many, {BATCH:,} at a time"}
    for (name, work), theirs in rates.items():
        if name != OURS:
            aim = AIMS.get((work, place), "") if name == NEAREST else "≥ 0.5 x" if name == LIMIT else ""
            yield _beside(f"{names[work]}: {name}", place, aim, rates[OURS, work], name, theirs)


def _beside(
    row: str, place: str, aim: str, ours: Sequence[float], name: str, theirs: Sequence[float], times: str = ""
) -> Figure:
    own, other = Rounds(ours), Rounds(theirs)
    return Figure(row, own.beside(other).times(times), aim, own.per_second(), f"{name} {other.per_second()}", place)


def drains(stage: Stage, only: Sequence[str] | None = None) -> Measured:
    """Tasks that do nothing, by one worker: those that wait when it starts, and those that come due in one instant."""
    found = list(sides(stage.say, only))
    for place, server in stage.places.items():
        with redis.Redis.from_url(stage.server.url) as client:
            arenas = {side.name: Arena(side, server.url, client, stage.folder) for side in found}
            sizes = {
                (side.name, settings): _size(side, rate * stage.seconds)
                for side in found
                for settings, rate in _tried(stage, arenas[side.name], place).items()
            }
            rates: Rates = {}
            due: Rates = {}
            for turn, (one, tasks) in product(range(stage.rounds), sizes.items()):
                stage.say(f"{place}, round {turn + 1} of {stage.rounds}: {', '.join(one)}, {tasks:,} tasks")
                drained, late = _turn(arenas[one[0]], one[1], tasks)
                rates.setdefault(one, []).append(drained)
                if late is not None:
                    due.setdefault(one, []).append(late)
        yield [*_drains_shown(stage, place, found, rates, due)]


def _size(side: Side, tasks: float) -> int:
    """Tasks of a turn: more of BullMQ, for node gets faster while it runs, and of ours beside it."""
    return max(LEAST, min(MOST, round(tasks * LONGER if side.name in VARIED else tasks)))


def _tried(stage: Stage, arena: Arena, place: str) -> Mapping[str, float]:
    """The rates at each of the documented settings; of sides besides ours and BullMQ, the best alone."""
    found = {}
    for name, settings in arena.side.drains.items():
        stage.say(f"{place}, warming: {arena.side.name}, {name}")
        for tasks in WARMING:
            arena.clear()
            with arena.adding() as adder:
                adder.add("due", tasks, "nothing", 0, 0)
            with arena.working(settings, is_ready=False):
                found[name] = arena.drain(tasks)
            if found[name] < 2 * tasks:
                break
    best = max(found, key=lambda name: found[name])
    return found if arena.side.name in VARIED else {best: found[best]}


def _turn(arena: Arena, settings: str, tasks: int) -> tuple[float, float | None]:
    """The rate of a drain, and, at the most at a time, that of as many tasks that come due in one instant."""
    arena.clear()
    with arena.adding() as adder:
        took_s = adder.add("due", tasks, "nothing", 0, 0)
        with arena.working(arena.side.drains[settings], is_ready=False):
            rate = arena.drain(tasks)
            if arena.side.name in VARIED and settings != list(arena.side.drains)[-1]:
                return rate, None
            at = time.time() + HEAD_START_S + 1.3 * took_s
            adder.add("due", tasks, "nothing", round(at * 1_000), 0)
            time.sleep(max(0.0, at - time.time()))
            arena.until_drained()
            return rate, tasks / (time.time() - at)


def _drains_shown(stage: Stage, place: str, found: Sequence[Side], rates: Rates, due: Rates) -> Iterator[Figure]:
    """Defaults beside BullMQ's, then the most at a time beside each one's best."""
    ours, *others = found
    usual, crowd = ours.drains
    bars = stage.bars.setdefault(place, {})
    bars[OURS] = max(Rounds(rates[OURS, one]).median for one in ours.drains)
    for side in others:
        best = max((one for one in rates if one[0] == side.name), key=lambda one: Rounds(rates[one]).median)
        bars[side.name] = Rounds(rates[best]).median
        pairs = [(crowd, best, AIMS["crowd", place])]
        if side.name == NEAREST:
            pairs = [(usual, (side.name, side.usual), AIMS["usual", place]), *pairs]
        for own, theirs, aim in pairs:
            row = f"drain, {own}: {', '.join(theirs)}"
            aimed = aim if side.name == NEAREST else ""
            yield _beside(row, place, aimed, rates[OURS, own], side.name, rates[theirs])
        theirs = next(one for one in due if one[0] == side.name)
        row = f"all due in one instant, to the last settle, {crowd}: {', '.join(theirs)}"
        yield _beside(row, place, "", due[OURS, crowd], side.name, due[theirs])


def lates(stage: Stage, only: Sequence[str] | None = None) -> Measured:
    """How late tasks begin beside others that are due in an hour, and what one of those weighs."""
    ours: dict[str, list[list[float]]] = {}
    weight = 0.0
    for side in sides(stage.say, only):
        rows = []
        with redis.Redis.from_url(stage.server.url) as client:
            arena = Arena(side, stage.server.url, client, stage.folder)
            arena.clear()
            pending = min(stage.pending, side.most)
            each = _weight(stage, arena, client, pending)
            weight = weight or each
            for place, server in stage.places.items():
                late = _late(stage, Arena(side, server.url, client, stage.folder))
                ours.setdefault(place, late)
                stage.curves.setdefault(f"{side.name}, {place}", list(chain.from_iterable(late)))
                rows.append(_late_shown(side, place, pending, ours[place], late))
        bytes_shown = Figure(
            f"bytes of a pending task: {side.name}",
            f"{weight / each:.2f} x" if side.name != OURS else "",
            "≤ 420 bytes" if side.name == OURS else "",
            f"{weight:.0f} bytes",
            f"{side.name} {each:.0f} bytes" if side.name != OURS else "",
        )
        yield [*rows, bytes_shown]


def _weight(stage: Stage, arena: Arena, client: redis.Redis, pending: int) -> float:
    """Fill the server; the bytes of each task."""
    with arena.adding() as adder:
        adder.add("many" if arena.side.has_batches else "one", BATCH)
        before = int(client.info("memory")["used_memory"])
        stage.say(f"{arena.side.name}: {pending:,} tasks due in an hour are added")
        first_at = round(time.time() * 1_000) + 3_600_000
        adder.add("due", pending, "nothing", first_at, 1)
    return (int(client.info("memory")["used_memory"]) - before) / pending


def _late(stage: Stage, arena: Arena) -> list[list[float]]:
    """Lateness (ms) of each round's tasks."""
    name, settings = arena.side.precise
    stage.say(f"{arena.side.name}, {name}: lateness")
    tasks, found = max(50, round(RATE * stage.seconds)), []
    with arena.working(settings), arena.adding() as adder:
        arena.until_fetched()
        for _ in range(stage.rounds):
            arena.notes.write_bytes(b"")
            adder.add("due", tasks, "late", round(time.time() * 1_000) + HEAD_START_MS, 1_000 / RATE)
            arena.until_noted(tasks)
            found.append([float(line) for line in arena.noted()[:tasks]])
    return found


def _late_shown(
    side: Side, place: str, pending: int, ours: Sequence[Sequence[float]], late: Sequence[Sequence[float]]
) -> Figure:
    row = f"late, beside {pending:,} pending"
    if side.name == OURS:
        return Figure(row, "", "p50 ≤ 1.5, p99 ≤ 3 ms", lateness_of(late), "", place)
    own, other = (list(chain.from_iterable(one)) for one in (ours, late))
    ratios = [quantile(own, share) / quantile(other, share) for share in (0.5, 0.99)]
    ratio = "p50 {:.2g} x, p99 {:.2g} x".format(*ratios)
    theirs = f"{side.name} {lateness_of(late)}"
    return Figure(f"{row}: {side.name}, {side.precise[0]}", ratio, "", lateness_of(ours), theirs, place)


def crashes(stage: Stage, only: Sequence[str] | None = None) -> Measured:
    """A worker that runs 100 tasks is killed, another one starts at once: the time until all are done.

    All sides and rounds wait beside each other, each on a Redis of its own: nothing of it needs a processor.
    """
    found = list(sides(stage.say, only))
    stage.say(f"kill -9 of a worker, {stage.rounds} of each: {PATIENCE_S:.0f} s at most")
    with ExitStack() as running, ThreadPoolExecutor(stage.rounds * len(found)) as pool:
        runs: dict[str, list[Future[float]]] = {side.name: [] for side in found}
        for side, turn in product(found, range(stage.rounds)):
            url = running.enter_context(bench_server()).url
            runs[side.name].append(pool.submit(_crash, side, url, stage.folder / f"{side.name}-{turn}"))
        took = {name: Rounds(run.result() for run in all_of_it) for name, all_of_it in runs.items()}
    yield [_crash_shown(name, took[OURS], rounds) for name, rounds in took.items()]


def _crash(side: Side, url: str, folder: Path) -> float:
    """Seconds from the kill until all are done; infinity where that takes too long."""
    folder.mkdir()
    with redis.Redis.from_url(url) as client:
        arena = Arena(side, url, client, folder)
        arena.clear()
        arena.hold.touch()
        with arena.adding() as adder:
            adder.add("due", CROWD, "held", 0, 0)
        with arena.working(side.crowd) as first:
            arena.until_noted(CROWD)
            arena.hold.unlink()
            kill(first)
            first.wait()
            began = time.monotonic()
            with arena.working(side.crowd):
                try:
                    arena.until_drained(PATIENCE_S)
                except AssertionError:
                    return float("inf")
                return time.monotonic() - began


def _crash_shown(name: str, ours: Rounds, rounds: Rounds) -> Figure:
    row = f"kill -9 of {CROWD} running, until all are done"
    if name == OURS:
        return Figure(row, measured=_seconds(ours))
    ratio = f"< {max(ours) / PATIENCE_S:.2f} x" if max(rounds) == float("inf") else ours.beside(rounds).times()
    return Figure(f"{row}: {name}", ratio, "", _seconds(ours), f"{name} {_seconds(rounds)}")


def _seconds(rounds: Rounds) -> str:
    if max(rounds) < float("inf"):
        return rounds.shown("{:.1f} s")
    return f"{sum(one < float('inf') for one in rounds)} of {len(rounds)} within {PATIENCE_S:.0f} s"
