"""The command line: up, down, status, nodetool, jars."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.cassandra.config import FIRST_MAX, NODES_ALLOWED
from tools.cassandra.jars import CACHE, CASSANDRA_VERSION, CassandraError, fetch_jars
from tools.cassandra.ring import Ring

EXIT_FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except CassandraError as error:
        print(f"cassandra: {error}", file=sys.stderr)
        return EXIT_FAILED


def _run(options: argparse.Namespace) -> int:
    if options.command == "jars":
        print(fetch_jars(version=options.version))
        return 0
    if options.command == "up":
        return _up(options)
    ring = Ring.find(options.dir)
    if options.command == "down":
        return _down(ring, remove=options.remove)
    if options.command == "status":
        return _status(ring)
    return _nodetool(ring, options.node, options.arguments)


def _up(options: argparse.Namespace) -> int:
    known = Ring.find(options.dir) or Ring(options.dir)
    fast_start = known.fast_start if options.fast_start is None else options.fast_start
    ring = Ring(
        options.dir,
        nodes=options.nodes or len(known.nodes),
        commitlog=options.commitlog or known.commitlog,
        fast_start=fast_start,
        lazy=options.lazy or known.lazy,
        centres=options.centres or known.centres,
        version=options.version or known.version,
        first=options.first or known.nodes[0].settings.first,
    )
    ring.start()
    _status(ring)
    print(f"export DUELINE_STORE='{ring.url()}'")
    return 0


def _down(ring: Ring | None, *, remove: bool) -> int:
    if ring is not None and remove:
        ring.remove()
    elif ring is not None:
        ring.stop()
    return 0


def _status(ring: Ring | None) -> int:
    """Print a line a node; returns 0 when all answer."""
    if ring is None:
        print("no ring here")
        return EXIT_FAILED
    for node in ring.nodes:
        state = "ready" if node.is_ready() else "silent" if node.is_alive() else "down"
        print(f"{node.host}:9042 {state:6} pid {node.pid or '-'} log {node.log}")
    return 0 if all(node.is_ready() for node in ring.nodes) else EXIT_FAILED


def _nodetool(ring: Ring | None, number: int, arguments: Sequence[str]) -> int:
    if ring is None or number > len(ring.nodes):
        raise CassandraError(f"There is no node {number} here: start a ring with up.")
    print(ring.nodes[number - 1].nodetool(*arguments), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.cassandra",
        description="A real Cassandra on loopback, without a container.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument(
        "--dir", type=Path, default=CACHE / "ring", help="where the nodes keep their data"
    )

    up = commands.add_parser("up", parents=[folder], help="start the nodes that are not running")
    up.add_argument("--nodes", type=int, choices=NODES_ALLOWED, help="default: as before, or 1")
    up.add_argument(
        "--commitlog", choices=("batch", "periodic"), help="default: as before, or batch"
    )
    up.add_argument(
        "--centres", action="store_true", help="a data centre for each node; for a new ring"
    )
    up.add_argument(
        "--fast-start",
        action=argparse.BooleanOptionalAction,
        help="half the time to start, slower after; default: as before, or not",
    )
    up.add_argument(
        "--lazy", action="store_true", help="quick TRUNCATE and DDL; for a node that is not killed"
    )
    up.add_argument("--version", help=f"default: as before, or {CASSANDRA_VERSION}")
    up.add_argument(
        "--first",
        type=int,
        metavar=f"1..{FIRST_MAX}",
        help="start at 127.0.0.FIRST, beside rings at other addresses; for a new ring",
    )
    down = commands.add_parser("down", parents=[folder], help="stop all nodes, keep their data")
    down.add_argument("--remove", action="store_true", help="remove their data as well")
    commands.add_parser("status", parents=[folder], help="say which nodes answer")
    nodetool = commands.add_parser("nodetool", parents=[folder], help="run nodetool on a node")
    nodetool.add_argument("--node", type=int, default=1, help="which node, from 1")
    nodetool.add_argument("arguments", nargs=argparse.REMAINDER, help="what nodetool is asked")
    jars = commands.add_parser("jars", help="fetch the server's jars, once; print their folder")
    jars.add_argument("--version", default=CASSANDRA_VERSION, help="default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
