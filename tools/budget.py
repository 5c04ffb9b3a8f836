"""Count what makes the source long and what asks for the kind of store; compare it with limits.

A limit is what was reached: it is lowered with each change that gets below it.
"""

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("src/dueline")
TESTS = Path("tests")
CAPABILITIES = SOURCE / "core/store_capabilities.py"
STORES = {"stores", "store_tests"}
HOT = "Hot path: the benchmark `"
"""What the docstring of a module says that may use `dueline.core.tuples`; a row of `make bench`."""

EMPTY = {"one", "found", "some"}

LIMITS = {
    "questions about transactions": 24,
    "questions about the distance of the store": 10,
    "questions about an optional ability": 14,
    "names that say nothing": 4,
    "tuple tricks outside hot paths": 0,
    "tests that only call their body": 4,
    # Redis: rights that are named, replicas that confirm, Sentinel, and what doctor says of it.
    # Group commits on servers and of coroutines. Lanes of functions that have begun.
    # Walks, whose pages cost the same. Questions to the pipeline. What was usual for a task.
    # Long calls in parts on Redis. What calls of a task share is prepared once.
    # Results of ends share records where ends are not transactions.
    # A cluster of Redis: its nodes, and slots that move.
    # Waiting jobs of RQ.
    # Workers on Cassandra that poll less while wake-ups arrive.
    # Admin pages of Django that change jobs, and stores of its tests; ended jobs that run again.
    # Removal of personal data from tables. Small batches that are sent together on Cassandra.
    # Jobs that wait for a worker that can take their arguments.
    # Jobs by columns, and samples of lanes, for readers of whole queues.
    # A function, Airflow and Dagster for the pipeline.
    # Asynchronous callers: transactions on their connections, finished jobs, twins of methods.
    # Trends of the last hour, day and week, tasks and last runs on the dashboard.
    # Tables in catalogs of Iceberg.
    # Alerts for dead letters, pauses and failed imports.
    # Celery's settings, signals and states, and the check of an application's source.
    # Answers in the report.
    # Records of threads that share a commit, and threads that read for others or wait for ends.
    # What bursts leave, groups of dead letters, commands by purpose.
    # Writes of durable coroutine functions that share a thread; records in one trip.
    # Values of numpy and pandas, and modules made of a notebook's cells.
    # State and steps of durable functions that have ended.
    # Jobs that wait for jobs that exist, and unique workflows.
    # Calls of stopped functions, named as the code has them.
    # Durable functions in the dashboard and over HTTP: pages of long logs, calls, and changes.
    # Batches: items that are stored by slices, ends by position, results in order, progress.
    # Large values as blobs.
    # What durable functions do: counts, traces, records in the history and their audit.
    # Costs of limits, their lines and corrections, capacities of keys and those that adapt.
    # Exports of stores and their import, search of ended jobs, a reserve on the disk.
    # Jobs of one key in the order of their calls.
    # Topics: names of events, subscribers, deliveries to tasks, and their commands.
    # Sections that must not repeat, and tasks that pause themselves when they fail.
    # Workflows that are forked, who changed a job, histories of keys and headers.
    # Partial results that readers follow, webhooks at the ends of jobs, a hook at the claim.
    # Widths of buckets, checked against the load, and intervals of polls and maintenance.
    # Starts that pass more urgent jobs, as a metric.
    # Moves that keep the order of keys and the history, and their audit.
    # Events that are explained, and pages of streams and events.
    # Refused outcomes and sections in the history, and their rules in the audit.
    # The next job of an order key checks soon; a queue says whether a dead one blocks its key.
    # Maintenance tasks that only the leader loads.
    # Jobs that move to another queue, with their unique keys, by all faces.
    # Crashes by their signature, the settings of queues over HTTP.
    "lines of src": 125_344,
}


def kinds_of_store(tree: ast.AST, capabilities: set[str]) -> Iterator[str]:
    """Yield what a module asks about the kind of its store."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="transactional", ctx=ast.Load()):
                yield "questions about transactions"
            case ast.Compare(comparators=[ast.Constant(value="network")]):
                yield "questions about the distance of the store"
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
                asked = {name.id for name in ast.walk(kind) if isinstance(name, ast.Name)}
                if asked & capabilities:
                    yield "questions about an optional ability"


def empty_names(tree: ast.AST) -> int:
    """Count the places where a variable or parameter gets a name that says nothing."""
    return sum(
        (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in EMPTY)
        or (isinstance(node, ast.arg) and node.arg in EMPTY)
        for node in ast.walk(tree)
    )


def has_tuple_tricks(tree: ast.Module) -> bool:
    """Return whether a module makes or reads tuples unusually, and names no benchmark for it."""
    uses = any(
        (isinstance(node, ast.ImportFrom) and node.module == "dueline.core.tuples")
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == "tuple.__new__")
        for node in ast.walk(tree)
    )
    return uses and HOT not in (ast.get_docstring(tree) or "")


def bodies_elsewhere(source: str) -> int:
    """Count the test functions that only call a function of another module of tests."""
    tree = ast.parse(source)
    borrowed = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.")
        for alias in node.names
    }
    calls = [
        node.body[0].value.func
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and len(node.body) == 1
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Call)
    ]
    return sum(
        any(isinstance(name, ast.Name) and name.id in borrowed for name in ast.walk(called))
        for called in calls
    )


def count() -> tuple[Counter[str], Counter[str]]:
    """Return the counts of LIMITS, and the lines of each package."""
    counted: Counter[str] = Counter(dict.fromkeys(LIMITS, 0))
    lines: Counter[str] = Counter()
    capabilities = {
        node.name
        for node in ast.parse(CAPABILITIES.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        tree = ast.parse(text)
        package = path.relative_to(SOURCE).parts[0]
        lines[package] += len(text.splitlines())
        counted["names that say nothing"] += empty_names(tree)
        counted["tuple tricks outside hot paths"] += has_tuple_tricks(tree)
        if package not in STORES and path != CAPABILITIES:
            counted.update(kinds_of_store(tree, capabilities))
    counted["lines of src"] = lines.total()
    for path in TESTS.rglob("test_*.py"):
        counted["tests that only call their body"] += bodies_elsewhere(path.read_text())
    return counted, lines


def main() -> None:
    """Print the counts; exit with 1 where one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", action="store_true", help="list the lines of each package")
    listed = parser.parse_args().packages
    counted, lines = count()
    if listed:
        for package, number in lines.most_common():
            print(f"{package}: {number}")
    print(", ".join(f"{counted[name]} {name} (at most {most})" for name, most in LIMITS.items()))
    if above := [name for name, most in LIMITS.items() if counted[name] > most]:
        raise SystemExit(f"Too many: {', '.join(above)}.")


if __name__ == "__main__":
    main()
