"""`python -m tests.whole.storm.report FOLDER`: the storms whose results are in a folder, as Markdown tables.

python -m tests.whole.storm 7 --keep storms/7
python -m tests.whole.storm 8 --keep storms/8
python -m tests.whole.storm.report storms
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.whole.storm.run import Outcome

NAME = "result.json"


def write(outcome: Outcome, folder: Path) -> None:
    """Keep what came of a storm in its folder."""
    late = sorted(ms for _, ms in outcome.verdict.late)
    found = {
        "seed": outcome.plan.seed, "stage": outcome.plan.stage, "counts": outcome.verdict.counts,
        "doubles": outcome.verdict.doubles, "faults": [name for name, _, _ in outcome.faults],
        "wrong": outcome.verdict.wrong, "settled_s": outcome.settled_s,
        "late_ms": [late[len(late) * share // 1000] for share in (500, 990)] + late[-1:] if late else [],
    }  # fmt: skip
    (folder / NAME).write_text(json.dumps(found, indent=1))


def tables(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Lines of two tables: a row for each storm, and one for each reason of a further run."""
    storms = sorted(found, key=lambda one: (one["seed"], one["stage"]))
    yield "| seed | servers | tasks | occurrences | faults | late p50, p99, most | further runs | wrong |"
    yield "| --- | --- | ---: | ---: | ---: | --- | ---: | ---: |"
    for one in storms:
        counts, doubles = one["counts"], sum(one["doubles"].values())
        late = ", ".join(_spoken(ms) for ms in one["late_ms"])
        yield (
            f"| {one['seed']} | {one['stage']} | {counts['tasks']} | {counts['occurrences']} | {len(one['faults'])} "
            f"| {late} | {doubles} | {len(one['wrong'])} |"
        )
    yield ""
    yield "| reason of a further run | runs |"
    yield "| --- | ---: |"
    reasons: Counter[str] = Counter()
    for one in storms:
        reasons.update(one["doubles"])
    for reason, many in sorted(reasons.items(), key=lambda pair: -pair[1]):
        if many:
            yield f"| {reason} | {many} |"


def _spoken(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="tests.whole.storm.report", description="Storms as Markdown tables.")
    parser.add_argument("folder", type=Path, help="where storms were kept, one below the other")
    folder: Path = parser.parse_args(arguments).folder
    print("\n".join(tables(json.loads(path.read_text()) for path in folder.rglob(NAME))))


if __name__ == "__main__":
    main()
