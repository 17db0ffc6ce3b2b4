"""The servers that a store's URL names."""

from urllib.parse import urlsplit


def nodes_of(url: str, default_port: int) -> list[tuple[str, int]]:
    """Host and port of each server in `scheme://[user@]host[:port][,host[:port]…]/…`, none for a URL without a host.

    Raises ValueError where a port is none.
    """
    hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    nodes = [urlsplit(f"//{host}") for host in hosts]
    return [(node.hostname, default_port if node.port is None else node.port) for node in nodes if node.hostname]
