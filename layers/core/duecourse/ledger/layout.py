"""Layout of a task's record: its parts field by field, its letters and flags, its versions.

record.py makes Python's structs of it. `lua_linker.py`, beside the package, writes each `fields.NAME` of a script out.
`constants` has those names.

To add a field, add it here, in `pack_rest` and `unpack` of record.py, and to Task of task.py. A Task is also made of an
event, in `running/task_event.py` and `testing/handlers.py`. `_anew` of `running/received_tasks.py` makes a NewTask of a
Task. NewTask says what callers need.

A new length comes before notify's: NOTIFY_TO ends with the payload's, which stays last. Change each script that has
`fields.LENGTHS_FORMAT`, and SIZE_AT and `encode` of `tests/support/python_record.py`. For a new length or number of
REST, change `notification` of `modules/notifications.lua` too, which packs a rest by hand. For a new number of FRONT,
change `choice.lua`, `begin.lua` and `modules/layout.lua` too, which spell its beginning.

To add a state, give it a letter in LETTERS, a line in STATUSES of record.py and in the lists of `modules/record.lua`,
and a place in SECTIONS of many_tasks.py. Look at each use of `fields.DIED` and of `Status.DEAD`, in `local/` too
(`doctor/shard_exam.py`, `backup/leveldb_repair.py`). An outcome is in OUTCOMES here and of timeline.py, in FAILURES of
task.py and of `modules/record.lua`, and in the description of `outcome` in `tasks/http.py`.

Then raise VERSION. From then on this release rejects shards, folders and exports of the version before. So write a
conversion of its exports in `backup/` of `local/duecourse_local`, as `format.py` takes VERSION alone, and name that way
in EARLIER. Its test reads an export that the release before wrote, kept in `tests/local/fixtures/exports`.
`tests/whole/test_mixed_releases.py` needs a wheel of the new version in `tests/fixtures`. CHANGELOG.md names that
version.

A record, big-endian, lengths in bytes. The front is what state changes rewrite; the rest is set by an add. All that
has a length of its own comes after all lengths, so that one look at a fixed place finds each.

    front  FRONT
    rest   ORIGIN, POLICY, LENGTHS; then by, kind, group, notify, payload
           tail (may be empty): state length 2, state, result length 4, result, entries forgotten 2, then the log: of
           each entry ENTRY, then RUN and a detail, or CHANGE and by; of a move then NUL and 8 bytes of this move alone,
           by which it is known if it is sent again
    status 1

A claim, and a settle that is done, write most of all, and a long string is the dearest thing that a script makes. So
they leave a record as it is, and add what happened behind it. Any other change of such a record folds that into it.

    begun  BEGUN with "L": behind a record that is scheduled, a lease; AHEAD is added to its trigger where it was
           claimed ahead, and its run is not known to have begun
    handed target, its length 1, then BEGUN with "V": a lease of delivery, which its target has yet to begin
    worked the delivery's TOKEN, then BEGUN with "W": the lease that its target began
    ended  result, then ENDED with "D": behind "L" or "W", its end

The run of a delivery is the one that it will become: if its target does not begin it, the run is not counted.

`last` is the ending of the last settled lease, a small letter where the task died of it. By it, a repeated settle gets
the same answer. `origin` is 6 random bytes of the call that added the task, and the task's place in it. By it, a
repeated add gets the same answer. If the call was a request with a key, the 6 bytes are its mark, the same in each try,
and KEYED is added to the place. Once another task has replaced this one, the log's entry of its add has NUL and the
origin behind by. `trigger` is the last lease's.

A payload of over a KiB is apart, in the field `<stored id>=<number>` of the tasks' hash. The record has BODY in its
place, and the flag APART.

A shard's meta names the version of its records in `layout`, and the hash of the ledger does. Only VERSION is read. A
script rejects a shard of another version, and a folder of another version is not opened.
"""

from typing import TypeAlias

VERSION = 5
"""Version of the records that are read and written. 0.1.0 had 4."""
EARLIER = "upgrade it once with commit 9d900a4, as docs/how-to/deploy.md says"
"""Way out of an earlier version: no import takes an export of 0.1.0."""
LATER = "use the release that wrote it, or a later one"
"""Way out of a later version, whose exports no import takes either."""

Field: TypeAlias = "int | bytes | Part"
PYTHON = {1: "B", 2: "H", 4: "I", 6: "HI"}
"""Number formats of Python's struct by size: what it has no letter for it reads as two halves."""


class Part:
    """Fields in their order: numbers by their size in bytes, bytes taken as they are (`bytes(8)`), and other parts."""

    def __init__(self, **fields: Field) -> None:
        self.fields = fields

    @property
    def size(self) -> int:
        """Size in bytes."""
        return sum(map(_size, self.fields.values()))

    @property
    def python(self) -> str:
        """The format for Python's struct, without a byte order; another part is taken as bytes."""
        return "".join(PYTHON[one] if isinstance(one, int) else f"{_size(one)}s" for one in self.fields.values())

    @property
    def lua(self) -> str:
        """The format for Lua's struct, without a byte order; another part is taken field by field."""
        return "".join(map(_lua, self.fields.values()))

    def at(self, name: str) -> int:
        """Number of bytes before a field."""
        names = list(self.fields)
        return sum(_size(self.fields[before]) for before in names[: names.index(name)])


def _size(field: Field) -> int:
    if isinstance(field, bytes):
        return len(field)
    return field if isinstance(field, int) else field.size


def _lua(field: Field) -> str:
    if isinstance(field, bytes):
        return f"c{len(field)}"
    return field.lua if isinstance(field, Part) else "B" if field == 1 else f"I{field}"


TOKEN = Part(fence=6, nonce=bytes(8))
FRONT = Part(
    version=1, flags=1, last=1, count=1, trigger=1, run=4, attempt=2,
    due=6, created=6, generation=6, deadline=6, claimed=6, token=TOKEN,
)  # fmt: skip
ORIGIN = Part(call=bytes(6), place=2)
POLICY = Part(jitter=1, max_attempts=2, backoff=4, factor=2, max_backoff=4)
LENGTHS = Part(by=1, kind=1, group=1, notify=2, payload=4)
REST = Part(origin=ORIGIN, policy=POLICY, lengths=LENGTHS)
"""The front of the rest."""
BEGUN = Part(run=4, token=TOKEN, claimed=6, trigger=1, letter=1)
ENDED = Part(length=4, ended=6, letter=1)
ENTRY = Part(letter=1, at=6, times=1, length=2)
RUN = Part(run=4, fence=6, claimed=6, trigger=1, late=4)
CHANGE = Part(due_before=6, due=6)
BODY = Part(number=6, size=4)
"""Reference to a payload apart from its record: the number in its field's name, and its size."""

AHEAD = 128
"""Added to the trigger of a lease that was claimed ahead: its run is not known to have begun."""

KEYED = 0x8000
"""Added to the place in an origin of a request with a key."""

INSIDE = 1024
"""The largest payload, in bytes, that stays inside its record."""

COUNTED, SUCCESSOR, CAME, COUNTS, OCCURRENCE, APART = 1, 2, 4, 16, 32, 128
"""Flags. COUNTED: the payload counts among its tenant's bytes (lua/modules/tenant_bytes.lua). SUCCESSOR: a replacement
waits. CAME: how the record came, two bits (0 created, 2 replaced, 3 debounced). COUNTS: the deadline was given as a
duration, and counts from the due time. OCCURRENCE: a schedule notes its end. APART: the payload is apart."""

NEVER = 253_402_300_799_999
"""Due time of what waits for something else than time: ledger/schedule.py's."""

LETTERS = {
    "SCHEDULED": "s", "LEASE": "l", "FINISHED": "d", "DIED": "x", "CANCELLED": "c",
    "BEGUN": "L", "HANDED": "V", "WORKED": "W", "ENDED": "D",
}  # fmt: skip
"""The status, and what a record has behind it, by the record's last byte."""
OUTCOMES = {
    "DONE": "D", "AGAIN": "A", "RETRY": "R", "DROP": "X", "RELEASE": "B",
    "LAPSED": "L", "UNDELIVERED": "V", "TAKEN": "T", "EXPIRED": "E",
}  # fmt: skip
"""End of a run, in the log; those of a settle in `last` too."""
ACTIONS = {
    "ADDED": "N", "REPLACED": "U", "DEBOUNCED": "O", "MOVED": "M", "REPLAYED": "P", "CANCELLED": "K",
}  # fmt: skip
"""Action of a caller, in the log."""


def way_out(version: int) -> str:
    """The way out of another version."""
    return LATER if version > VERSION else EARLIER


def constants() -> dict[str, str]:
    """Literals of Lua that the scripts call `fields.NAME`: every number and part of this module, and what follows."""
    parts = {name: one for name, one in globals().items() if isinstance(one, Part)}
    numbers = {name: one for name, one in globals().items() if isinstance(one, int)}
    numbers |= {
        "POLICY_AT": ORIGIN.size + 1,
        "MAX_ATTEMPTS_AT": ORIGIN.size + POLICY.at("max_attempts") + 1,
        "LENGTHS_AT": REST.at("lengths") + 1,
        "NOTIFY_FROM": FRONT.size + REST.at("lengths") + LENGTHS.at("notify") + 1,
        "NOTIFY_TO": FRONT.size + REST.at("lengths") + LENGTHS.at("payload"),
        "TOKEN_FROM": BEGUN.at("token") - BEGUN.size,
        "TOKEN_TO": BEGUN.at("claimed") - BEGUN.size - 1,
        "RUN_FENCE": RUN.at("fence") + 1,
        "ENTRY_TIMES": ENTRY.at("times"),
        "ENTRY_LENGTH": ENTRY.at("length"),
        "DUE_AT": FRONT.at("due") + 1,
        "VERSION": VERSION,
        "SMALLEST": FRONT.size + REST.size + 1,
    }
    numbers |= {name: ord(letter) for name, letter in LETTERS.items()}
    numbers |= {f"RAN_{name}": ord(letter) for name, letter in OUTCOMES.items()}
    numbers |= {f"DID_{name}": ord(letter) for name, letter in ACTIONS.items()}
    numbers |= {f"{name}_SIZE": part.size for name, part in parts.items()}
    formats = {f"{name}_FORMAT": f"'>{part.lua}'" for name, part in parts.items()}
    texts = formats | {"VERSION_TEXT": f"'{VERSION}'"}
    return {name: str(number) for name, number in numbers.items()} | texts
