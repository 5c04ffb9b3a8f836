"""A queue file on a mount that is read-only can be read, and stays as it is (P1)."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.core.errors import StoreUnavailable
from dueline.stores.sqlite import file as sqlite_file

NOBODY = 65_534

READ = """
import os, sys
from dueline import Dueline
from dueline.core import queue_catalog
from dueline.stores.sqlite import store, wakeup
if os.geteuid() == 0:  # after the imports, of files that another user may not read
    os.setuid(int(sys.argv[2]))
app = Dueline(f"sqlite:///{sys.argv[1]}")
print(len(list(app.queues.engine.jobs_of("default"))))
"""


@pytest.fixture
def file() -> Iterator[Path]:
    """Make a queue file with three jobs, closed, which nobody may write to, nor its folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.db"
        app = Dueline(f"sqlite:///{path}")

        @app.task(name="note")
        def note(number: int) -> None:
            pass

        note.enqueue_many([(number,) for number in range(3)])
        app.close()
        path.chmod(0o400)
        path.parent.chmod(0o500)
        if os.geteuid() == 0:
            os.chown(path, NOBODY, -1)
            os.chown(path.parent, NOBODY, -1)
        yield path
        path.parent.chmod(0o700)


def test_another_user_reads_a_file_that_may_not_be_written_to(file: Path) -> None:
    before = file.read_bytes()
    assert [path.name for path in file.parent.iterdir()] == ["jobs.db"]
    command = [sys.executable, "-c", READ, str(file), str(NOBODY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["jobs.db"]


def test_what_is_written_to_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "jobs.db"
    first = Dueline(f"sqlite:///{path}")
    first.queues.engine.catalog.configure("mail")
    first.close()
    monkeypatch.setattr(sqlite_file, "is_sealed", lambda _path: True)
    before = path.read_bytes()
    app = Dueline(f"sqlite:///{path}")
    assert "mail" in app.queues.engine.catalog.names()
    with pytest.raises(StoreUnavailable, match=r"jobs\.db.*readonly"):
        app.queues.engine.catalog.configure("bills")
    app.close()
    assert path.read_bytes() == before
    assert list(tmp_path.glob("jobs.db-[sw][ha][lm]")) == []
