"""Processes killed between a blob and the row that names it; children; another store (C14)."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline
from tests.harness.addresses import WITH_ADDRESS, address

SHOP = """
import os, signal, sys
from pathlib import Path
from dueline import Dueline, Retry
from dueline.blobs import folder

app = Dueline(os.environ["URL"], blobs=Path("blobs").absolute().as_uri())
app.queue("default", lease=1)

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

where, kind = os.environ.get("DIE", "/").split("/")
write = folder.FolderPlace.write

def dying(self, name, data):
    if kind and f"-{kind}-" in name:
        if where == "draft":
            Path.replace = die
        write(self, name, data)
        die()
    write(self, name, data)

folder.FolderPlace.write = dying

@app.task(name="twice", retry=Retry(base=0))
def twice(text: str) -> str:
    return text + text

@app.task(name="pid")
def pid(text: str) -> str:
    return f"{os.getpid()} {text}"

if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        print(twice.enqueue("x" * 200_000).id)
    elif sys.argv[1] == "pid":
        print(pid.enqueue("x" * 200_000).id)
    else:
        app.run_worker(burst=True, processes=int(sys.argv[2]))
"""


class Shop:
    """A program in a folder, and its store."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        (folder / "shop.py").write_text(SHOP, encoding="utf-8")
        self.app = Dueline(url, blobs=(folder / "blobs").as_uri())

    def run(self, *words: str, die: str = "/") -> tuple[int, str]:
        """Run the program; return its exit code and what it printed."""
        ended = subprocess.run(
            [sys.executable, "shop.py", *words], cwd=self.folder, capture_output=True, text=True,
            env={**os.environ, "URL": self.url, "DIE": die}, timeout=100, check=False,
        )  # fmt: skip
        return ended.returncode, ended.stdout.strip()

    def blobs(self) -> list[str]:
        """Return the kinds of the whole blobs, and `draft` for others."""
        names = [path.name for path in (self.folder / "blobs").glob("*/*/*")]
        return sorted("draft" if "." in name else name.split("-")[1] for name in names)


@pytest.fixture(params=WITH_ADDRESS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Make a program on an empty store of each kind."""
    with address(request.param, tmp_path) as url:
        made = Shop(url, tmp_path)
        yield made
        made.app.close()


@pytest.mark.parametrize(("where", "left"), [("draft", "draft"), ("after", "arguments")])
def test_a_producer_that_is_killed_before_its_row_has_enqueued_nothing(
    shop: Shop, where: str, left: str
) -> None:
    assert shop.run("enqueue", die=f"{where}/arguments")[0] == -signal.SIGKILL
    assert shop.blobs() == [left]
    assert list(shop.app.admin.list("default").jobs) == []
    job = shop.app.job(shop.run("enqueue")[1])
    assert shop.run("work", "0")[0] == 0
    assert job.result(timeout=0) == "x" * 400_000


@pytest.mark.parametrize("where", ["draft", "after"])
def test_a_worker_that_is_killed_before_its_outcome_leaves_the_job_to_another(
    shop: Shop, where: str
) -> None:
    job = shop.app.job(shop.run("enqueue")[1])
    assert shop.run("work", "0", die=f"{where}/result")[0] == -signal.SIGKILL
    assert job.status != "done"
    for _ in range(20):  # its claim ends after a second
        assert shop.run("work", "0")[0] in (0, 8)
        if job.status == "done":
            break
    assert job.result(timeout=0) == "x" * 400_000
    assert [kind for kind in shop.blobs() if kind != "draft"] == ["arguments", "result"]


def test_child_processes_read_and_write_blobs(shop: Shop) -> None:
    job = shop.app.job(shop.run("pid")[1])
    assert shop.run("work", "1")[0] == 0
    text = job.result(timeout=0)
    assert text.endswith("x" * 200_000)
    assert shop.blobs() == ["arguments", "result"]


def test_a_store_that_moves_keeps_its_blobs(shop: Shop, tmp_path: Path) -> None:
    done = shop.app.job(shop.run("enqueue")[1])
    shop.run("work", "0")
    waiting = shop.run("enqueue")[1]
    target = f"sqlite:///{tmp_path}/target.db"
    subprocess.run(
        [sys.executable, "-m", "dueline", "move", "--from", shop.url, "--to", target, "--yes"],
        check=True, timeout=100,
    )  # fmt: skip
    moved = Shop(target, tmp_path)
    assert moved.app.job(done.id).result(timeout=0) == "x" * 400_000
    assert moved.run("work", "0")[0] == 0
    assert moved.app.job(waiting).result(timeout=0) == "x" * 400_000
    assert len(list((tmp_path / "blobs").iterdir())) == 1  # they share the namespace
    moved.app.close()
