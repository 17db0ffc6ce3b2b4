"""The limit: a script that does nothing, sent by redis-py."""

import sys

import redis

from tests.bench.peers.turns import serve


def main(url: str) -> None:
    """Serve."""
    client = redis.Redis.from_url(url)
    script = client.script_load("return 1")

    def one(count: int) -> None:
        for _ in range(count):
            client.evalsha(script, 0)

    serve(one=one)


if __name__ == "__main__":
    main(sys.argv[2])
