"""`python -m tests.whole.storm SEED`: storms on every stage, and a report.

python -m tests.whole.storm 7
python -m tests.whole.storm 7 --stage cluster --tasks 2000 --schedules 200 --seconds 60
python -m tests.whole.storm 7 --keep storms/7 --picture storm.svg
"""

import argparse
import socket
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.rabbitmq import URL
from tests.whole.storm.picture import drawn as picture
from tests.whole.storm.plan import Size, Stage, drawn
from tests.whole.storm.report import write
from tests.whole.storm.run import Outcome, run

SHARES = {Stage.ALONE: 0.6, Stage.SENTINEL: 0.2, Stage.CLUSTER: 0.2}
"""The part of all tasks and schedules that each stage has."""


def main() -> int:
    """Have the storms of a seed pass; exit code 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="make chaos", description="A storm of faults over thousands of tasks.")
    parser.add_argument("seed", type=int, help="the same seed is the same sequence")
    parser.add_argument("--stage", choices=[*Stage], action="append", help="only these; by default all")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=180, help="length of the first stage; the others have a third")
    parser.add_argument("--amqp", default=URL, help="a RabbitMQ; empty for none, as where none answers")
    parser.add_argument("--picture", type=Path, help="where the picture of the lateness is to be written")
    parser.add_argument(
        "--fair", action="store_true", help="no faults: what the storm finds is then the storm's own fault"
    )
    parser.add_argument("--without", action="append", default=[], help="a fault to leave out; may be repeated")
    parser.add_argument("--only", action="append", default=[], help="a fault to have alone; may be repeated")
    parser.add_argument("--keep", type=Path, help="a folder for logs and results, kept: see tests.whole.storm.report")
    given = parser.parse_args()
    if given.amqp and not answers(given.amqp):
        print(f"no RabbitMQ answers at {given.amqp}: nothing goes to one")
        given.amqp = ""
    wrong = 0
    for stage in given.stage or Stage:
        share = SHARES[Stage(stage)]
        seconds = given.seconds if stage == Stage.ALONE else given.seconds / 3
        size = Size(int(given.tasks * share), int(given.schedules * share), seconds)
        plan = drawn(given.seed, Stage(stage), size, broker=bool(given.amqp))
        kept = tuple(fault for fault in plan.faults if _is_wanted(fault.name, given))
        plan = replace(plan, faults=kept)
        print(
            f"{stage}, seed {given.seed}: {size.tasks} tasks, {size.schedules} schedules, {len(kept)} faults",
            flush=True,
        )
        with tempfile.TemporaryDirectory(prefix="duecourse-storm-") as temporary:
            folder = given.keep / str(stage) if given.keep else Path(temporary)
            if given.keep and folder.exists():
                parser.error(f"--keep: {folder} has a storm already; name another folder")
            folder.mkdir(parents=True, exist_ok=True)
            outcome = run(plan, folder, amqp=given.amqp, say=partial(print, flush=True))
            write(outcome, folder)
        tell(outcome)
        wrong += len(outcome.verdict.wrong)
        if given.picture and stage == Stage.ALONE:
            what = f"{size.tasks} tasks, {size.schedules} schedules, {len(outcome.faults)} faults"
            title = f"{what}, seed {given.seed}"
            given.picture.write_text(picture(title, outcome.begun_at, outcome.verdict.late, outcome.faults))
    return int(wrong > 0)


def _is_wanted(name: str, given: argparse.Namespace) -> bool:
    return not given.fair and name not in given.without and (not given.only or name in given.only)


def answers(amqp: str) -> bool:
    """True if something answers at this URL."""
    place = urlsplit(amqp)
    try:
        socket.create_connection((place.hostname or "", place.port or 5672), timeout=2).close()
    except OSError:
        return False
    return True


def tell(outcome: Outcome) -> None:
    """Print what was found."""
    verdict = outcome.verdict
    print(f"{outcome.plan.stage}, seed {outcome.plan.seed}: {dict(verdict.counts)}")
    print(f"  faults: {', '.join(f'{name} {(end - began) / 1_000:.1f} s' for name, began, end in outcome.faults)}")
    print(f"  settled after {outcome.settled_s:.1f} s; further runs: {dict(verdict.doubles) or 'none'}")
    late = sorted(ms for _, ms in verdict.late)
    if late:
        print(f"  late: p50 {late[len(late) // 2]} ms, p99 {late[len(late) * 99 // 100]} ms, most {late[-1]} ms")
    for line in verdict.wrong:
        print(f"  WRONG {line}")
    print(f"  {'passed' if not verdict.wrong else f'{len(verdict.wrong)} wrong'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
