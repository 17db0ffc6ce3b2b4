"""The limit: a script that does nothing, sent by redis-py."""

import sys

import redis

from tests.bench.peers.turns import serve


def main() -> None:
    """Serve."""
    client = redis.Redis.from_url(sys.argv[1])
    script = client.script_load("return 1")

    def one(count: int) -> None:
        for _ in range(count):
            client.evalsha(script, 0)

    serve(one=one, many=one)


if __name__ == "__main__":
    main()
