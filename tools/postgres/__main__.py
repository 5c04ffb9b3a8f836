"""The command line: up, down, status, url."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.postgres.cluster import CACHE, Cluster, PostgresError, install

EXIT_FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except PostgresError as error:
        print(f"postgres: {error}", file=sys.stderr)
        return EXIT_FAILED


def _run(options: argparse.Namespace) -> int:
    if options.command == "up":
        install()
        cluster = Cluster(options.dir, port=options.port, is_fast=options.fast)
        cluster.start()
        _status(cluster)
        print(f"export DUELINE_STORE='{cluster.url}'")
        return 0
    cluster = Cluster(options.dir)
    if options.command == "down":
        (cluster.remove if options.remove else cluster.stop)()
        return 0
    if options.command == "url":
        if not cluster.is_ready():
            raise PostgresError("No server runs here: start one with up.")
        print(cluster.url)
        return 0
    return _status(cluster)


def _status(cluster: Cluster) -> int:
    """Print a line; returns 0 when the server answers."""
    state = "ready" if cluster.is_ready() else "silent" if cluster.pid else "down"
    print(f"127.0.0.1:{cluster.port} {state:6} pid {cluster.pid or '-'} log {cluster.log}")
    return 0 if state == "ready" else EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.postgres",
        description="A real PostgreSQL on loopback, without a container.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--dir", type=Path, default=CACHE, help="where the server keeps its data")
    up = commands.add_parser("up", parents=[folder], help="start the server, install it if needed")
    up.add_argument("--port", type=int, help="default: as before, or 54329")
    up.add_argument("--fast", action="store_true", help="flush nothing to the disk: for tests")
    down = commands.add_parser("down", parents=[folder], help="stop the server, keep its data")
    down.add_argument("--remove", action="store_true", help="remove its data as well")
    commands.add_parser("status", parents=[folder], help="say whether the server answers")
    commands.add_parser("url", parents=[folder], help="print the store's URL, with its password")
    return parser


if __name__ == "__main__":
    sys.exit(main())
