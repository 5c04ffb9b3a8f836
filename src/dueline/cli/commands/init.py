"""`dueline init`: create a project in this folder."""

import json
import os
import sys
from pathlib import Path

import typer

from dueline import Dueline
from dueline.api.config import FILE_NAME
from dueline.api.connect import mask
from dueline.cli.output import Entry, Output, note
from dueline.cli.session import session_of
from dueline.core.errors import Conflict
from dueline.core.store import Migratable

DEFAULT_STORE = "sqlite:///jobs.db"
TASKS = Path("tasks.py")

_FILE_MODE = 0o666
_SECRET_MODE = 0o600

_TASKS = '''"""Tasks: `dueline enqueue tasks.hello Ann`, then `dueline worker`."""

from dueline import Dueline

app = Dueline()  # dueline.toml names the store


@app.task
def hello(name: str) -> str:
    return f"Hello, {name}!"
'''


def init(context: typer.Context) -> None:
    """Create dueline.toml, a sample tasks.py and the store.

    Without --store, the command asks for it on a terminal, and uses an SQLite file otherwise.
    Existing files are never overwritten (exit 5).

    Example: dueline init --store sqlite:///jobs.db
    """
    config = Path(FILE_NAME)
    for path in (config, TASKS):
        if path.exists():
            raise Conflict(
                f"The file {path} exists already.", hint="Use it, or choose another folder."
            )
    url = session_of(context).store or _asked()
    app = Dueline(url)
    try:
        store = app.queues.engine.store
        made = store.migrate().made if isinstance(store, Migratable) else []
        app.queues.engine.catalog.names()  # the first use creates an SQLite file
        settings = f'store = {json.dumps(url)}\napp = "{TASKS.stem}:app"\n'
        _write(config, settings, mode=_FILE_MODE if mask(url) == url else _SECRET_MODE)
        _write(TASKS, _TASKS, mode=_FILE_MODE)
        entry: Entry = {"store": mask(url), "made": [*made, FILE_NAME, str(TASKS)]}
        command: Entry = {"command": "init", "store": mask(url)}
        Output(session_of(context).form, app.queues.engine.time.latest_us(), command).entry(entry)
    finally:
        app.close()
    if mask(url) != url:
        note(
            f"{FILE_NAME} holds a password, so only you can read it. Keep it out of version "
            "control, or use ?password_file=PATH or ?password_env=NAME in the URL."
        )
    note(f"Next: dueline enqueue {TASKS.stem}.hello Ann, and dueline worker.")


def _asked() -> str:
    if not sys.stdin.isatty():
        return DEFAULT_STORE
    note(
        "Store of the jobs: sqlite:///FILE for one machine; for many, "
        "postgresql://USER:PASSWORD@HOST/DATABASE or cassandra://HOST/KEYSPACE."
    )
    answer: str = typer.prompt("Store", default=DEFAULT_STORE, err=True)
    return answer


def _write(path: Path, text: str, *, mode: int) -> None:
    """Write a new file. mode: its permissions, before the umask."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
