"""`dueline init`: begin a project here."""

import json
import sys
from pathlib import Path

import typer

from dueline import Dueline
from dueline.cli.output import Entry, Output, note
from dueline.cli.session import session_of
from dueline.config import FILE_NAME
from dueline.connect import mask
from dueline.errors import Conflict
from dueline.store import Migratable

DEFAULT_STORE = "sqlite:///jobs.db"
TASKS = Path("tasks.py")

_TASKS = '''"""Tasks: `dueline enqueue tasks.hello Ann`, then `dueline worker`."""

from dueline import Dueline

app = Dueline()  # its store is named in dueline.toml


@app.task
def hello(name: str) -> str:
    return f"Hello, {name}!"
'''


def init(context: typer.Context) -> None:
    """Write dueline.toml and a sample of tasks here, and set the store up.

    The store is that of --store; on a terminal it is asked for, and elsewhere an SQLite file.
    Nothing that is there already is written over.

    Example: dueline init --store sqlite:///jobs.db
    """
    config = Path(FILE_NAME)
    for path in (config, TASKS):
        if path.exists():
            raise Conflict(
                f"There is a file {path} here already.",
                hint="Work with it, or choose another folder.",
            )
    url = session_of(context).store or _asked()
    app = Dueline(url)
    try:
        store = app.queues.store
        made = store.migrate().made if isinstance(store, Migratable) else []
        app.queues.catalog.names()  # a file is made by its first use
        _write(config, f'store = {json.dumps(url)}\napp = "{TASKS.stem}:app"\n')
        _write(TASKS, _TASKS)
        entry: Entry = {"store": mask(url), "made": [*made, FILE_NAME, str(TASKS)]}
        command: Entry = {"command": "init", "store": mask(url)}
        Output(session_of(context).form, app.queues.time.latest_us(), command).entry(entry)
    finally:
        app.close()
    note(f"Next: dueline enqueue {TASKS.stem}.hello Ann, and dueline worker.")


def _asked() -> str:
    if not sys.stdin.isatty():
        return DEFAULT_STORE
    note("Where are jobs kept? sqlite:///FILE for one machine, cassandra://HOST/KEYSPACE for many.")
    answer: str = typer.prompt("Store", default=DEFAULT_STORE, err=True)
    return answer


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
