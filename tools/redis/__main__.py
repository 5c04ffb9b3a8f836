"""The command line: up, down, status."""

import argparse
import sys
from collections.abc import Sequence

from tools.redis.cluster import Slots
from tools.redis.server import KINDS, RedisError, Server, install
from tools.redis.watched import Watched

EXIT_FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    kinds = options.only or KINDS
    groups: Sequence[Server | Watched | Slots]
    if options.sentinel:
        watched = Watched(next(iter(kinds)))
        servers = [*watched.servers.values(), *watched.sentinels]
        groups = [watched]
    elif options.cluster:
        groups = clusters = [Slots(kind, fsync=options.fsync) for kind in kinds]
        servers = [server for cluster in clusters for server in cluster.servers]
    else:
        groups = servers = [Server(kind, fsync=options.fsync) for kind in kinds]
    try:
        if options.command == "up":
            install()
        for group in groups:
            if options.command == "up":
                group.start()
            elif options.command == "down":
                (group.remove if options.remove else group.stop)()
    except RedisError as error:
        print(f"redis: {error}", file=sys.stderr)
        return EXIT_FAILED
    is_good = options.command == "down" or _status(servers)
    return 0 if is_good else EXIT_FAILED


def _status(servers: Sequence[Server]) -> bool:
    """Print a line for each server; return whether all answer."""
    for server in servers:
        state = "ready" if server.is_ready() else "down"
        print(f"{server.kind:6} {server.url} {state:5} pid {server.pid or '-'} log {server.log}")
    return all(server.is_ready() for server in servers)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.redis",
        description="Real Redis and Valkey servers on loopback, without a container.",
    )
    parser.add_argument("command", choices=["up", "down", "status"])
    parser.add_argument("--only", action="append", choices=list(KINDS), help="by default, all")
    parser.add_argument("--fsync", default="everysec", choices=["always", "everysec", "no"])
    parser.add_argument(
        "--sentinel", action="store_true", help="a primary, a replica and sentinels, of one kind"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="three primaries and their replicas, of each kind"
    )
    parser.add_argument("--remove", action="store_true", help="with down: delete the data")
    return parser


if __name__ == "__main__":
    sys.exit(main())
