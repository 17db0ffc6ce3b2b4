"""Tokens of leases as an attacker would make them up, who has one of a claim and wants the others."""

import random
from collections.abc import Iterator, Sequence
from hashlib import md5, sha1, sha256

from duecourse.ledger.task import FENCE_DIGITS, Task

SIZE = 8
WHOLE = 1 << 8 * SIZE
STEPS = 40
"""Count of steps by which a token is counted on, to either side: more than any claim of a test."""


def guesses(known: Sequence[Task], wanted: Task, now: int) -> list[str]:
    """Tokens that may follow for the lease of `wanted` from those of the `known` ones; its fence is no secret.

    `now` is the time of the claim (epoch ms), for generators that were seeded with it.
    """
    fence = wanted.token[:FENCE_DIGITS]
    nonces = [nonce for task in known for nonce in _nonces(task, wanted, now)]
    whole = [
        token for task in known for token in (task.token, task.token[FENCE_DIGITS:] + fence, _counted(task, wanted))
    ]
    found = dict.fromkeys([*(fence + nonce.hex() for nonce in nonces), *whole])
    return [token for token in found if len(token) == len(wanted.token)]


def _counted(known: Task, wanted: Task) -> str:
    """The whole token as one number, counted on by as much as the fences differ."""
    return f"{(int(known.token, 16) + wanted.fence - known.fence) % (1 << 112):028x}"


def _nonces(known: Task, wanted: Task, now: int) -> Iterator[bytes]:
    mine = bytes.fromhex(known.token[FENCE_DIGITS:])
    apart = wanted.fence - known.fence
    yield from (mine, bytes(SIZE), b"\xff" * SIZE, mine[::-1], mine[4:] + mine[:4], bytes(255 - one for one in mine))
    yield from (mine[4:] * 2, mine[:4] * 2, mine[:4] + bytes(4), bytes(4) + mine[4:])
    for order in ("big", "little"):
        number = int.from_bytes(mine, order)  # type: ignore[arg-type]
        for step in (*sorted(range(-STEPS, STEPS + 1), key=abs), apart * 2**32, apart << 48):
            yield ((number + step) % WHOLE).to_bytes(SIZE, order)  # type: ignore[arg-type]
            yield (number ^ (step % WHOLE)).to_bytes(SIZE, order)  # type: ignore[arg-type]
        yield (number * 0x5DEECE66D + 0xB & WHOLE - 1).to_bytes(SIZE, order)  # type: ignore[arg-type]
        yield (number ^ known.fence ^ wanted.fence).to_bytes(SIZE, order)  # type: ignore[arg-type]
    yield from (mine[turn:] + mine[:turn] for turn in range(1, SIZE))
    yield from _hashed(known, wanted, mine)
    yield from _seeded(known, wanted, now)


def _hashed(known: Task, wanted: Task, mine: bytes) -> Iterator[bytes]:
    fences = known.fence.to_bytes(6), wanted.fence.to_bytes(6)
    ids = wanted.id.encode(), wanted.idempotency_key.encode()
    texts = [mine, known.token.encode(), *fences, *ids, *(mine + one for one in (*fences, *ids)), fences[1] + mine]
    for text in texts:
        for hashed in (md5, sha1, sha256):
            digest = hashed(text).digest()
            yield from (digest[:SIZE], digest[-SIZE:])


def _seeded(known: Task, wanted: Task, now: int) -> Iterator[bytes]:
    """The first numbers of generators with a seed that can be known: Python's, and that of scripts in Redis."""
    seeds = {0, 1, known.fence, wanted.fence, known.fence - 1, now, now // 1000, *range(now - 3, now)}
    for seed in seeds:
        generator = random.Random(seed)
        yield from (generator.randbytes(SIZE) for _ in range(STEPS))
        yield from _of_a_script(seed)


def _of_a_script(seed: int) -> Iterator[bytes]:
    """`math.random` of a script: drand48, and from the same seed at the beginning of each script."""
    state, drawn = (seed << 16) + 0x330E & (1 << 48) - 1, list[float]()
    for _ in range(STEPS * SIZE):
        state = state * 0x5DEECE66D + 0xB & (1 << 48) - 1
        drawn.append((state >> 17) / 2**31)
    for at in range(STEPS):
        yield bytes(int(one * 256) for one in drawn[at * SIZE : (at + 1) * SIZE])
        yield bytes(int(one * 256) for one in drawn[at : at + SIZE])
        yield b"".join(int(one * 2**32).to_bytes(4) for one in drawn[2 * at : 2 * at + 2])
