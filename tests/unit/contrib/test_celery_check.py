"""An application of ten tasks on Celery, from an empty folder: checked, changed, run (A8)."""

import json
from pathlib import Path

import pytest

from tests.harness.markdown import ROOT, run

FOLDER = ROOT / "tests/harness/celery_ten"

FOUND = {
    "celery.Task": "app.middleware",
    "celery.schedules.solar": "runs daily",
    "celery.signals.worker_process_init": "open lazily",
    "celery.utils.log.get_task_logger": "logging.getLogger",
    "kombu Queue": "no broker",
    "Celery(backend=)": "results are in the store",
    "Celery(broker=)": "sqlite:///jobs.db",
    "task_queues": "queue= of the tasks",
    "worker_prefetch_multiplier": "--concurrency",
    "broker_transport_options": "lease",
    "app.Task": "functions with @app.task",
    "task_failure(einfo=)": "exception",
    "task(base=)": "app.middleware",
    "task(throws=)": "keep their error",
    "apply_async(task_id=)": "unique=",
    "add.map": "enqueue_many",
    "other.forget": "expire by themselves",
    "app.control": "dueline workers",
}
"""The words that do not map, and a part of what is written instead."""

BOUND = """
from celery import shared_task
@shared_task(bind=True, acks_late=False, max_retries=None)
def a(self):
    self.request.args
    self.replace(1)
"""

START = """
from shop import app, add, convert, fetch, render, send, start, tell
waiting = [
    send.apply_async(("ann",), headers={"trace": "1"}), convert.delay(3), fetch.delay("url"),
    render.delay(1), render.delay(-1), render.delay(0), add.delay(1, 2), start(),
]
app.run_worker(burst=True)
print([(result.state, result.result if result.state == "SUCCESS" else None) for result in waiting])
print(app.schedules.names())
"""


def test_all_that_does_not_map_is_named_at_once_with_its_line(tmp_path: Path) -> None:
    source = (FOLDER / "before.txt").read_text(encoding="utf-8")
    (tmp_path / "shop.py").write_text(source, encoding="utf-8")
    words = ["dueline", "-o", "json", "import", "celery", "--check", "shop:app"]
    said = run(words, tmp_path, 5, "the check")
    found = json.loads(said[: said.rindex("}") + 1])["data"]
    assert {entry["word"] for entry in found} == set(FOUND)
    lines = source.splitlines()
    for entry in found:
        assert FOUND[entry["word"]] in entry["finding"]
        name, line = entry["place"].split(":")
        assert name == "shop.py"
        last = entry["word"].rstrip("=)").replace("(", ".").rpartition(".")[2].split()[-1]
        assert (
            last in "".join(lines[int(line) - 1 : int(line)]) or "Celery(" in lines[int(line) - 1]
        )


def test_the_changed_application_runs(tmp_path: Path) -> None:
    source = (FOLDER / "after.txt").read_text(encoding="utf-8")
    (tmp_path / "shop.py").write_text(source, encoding="utf-8")
    said = run(["dueline", "import", "celery", "--check", "shop:app"], tmp_path, 0, "the check")
    assert "All of it maps" in said
    (tmp_path / "start.py").write_text(START, encoding="utf-8")
    said = run(["python", "start.py"], tmp_path, 0, "the tasks")
    states = "[('SUCCESS', 'sent to ann'), ('SUCCESS', 3), ('SUCCESS', 3), ('SUCCESS', 1), "
    states += "('REVOKED', None), ('REVOKED', None), ('SUCCESS', 3), ('SUCCESS', 6)]"
    assert states in said
    assert "['nightly', 'often']" in said
    said = run(["dueline", "worker", "shop:app", "--burst"], tmp_path, 0, "the worker")
    assert "shop.convert" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("from celery import Celery\napp = Celery('a')\napp.conf.task_serializer = 'pickle'\n",
         ["task_serializer"]),
        ("from celery import Celery\napp = Celery('a')\napp.conf['worker_pool'] = 1\n",
         ["worker_pool"]),
        ("from celery import Celery\napp = Celery('a')\napp.conf.task_routes = ['x.route']\n",
         ["task_routes"]),
        (BOUND,
         ["acks_late=False", "max_retries=None", "self.request.args", "self.replace"]),
        ("import celery.app.control\n", ["celery.app.control"]),
        ("from celery import nothing\n", ["celery.nothing"]),
        ("from celery import *\nimport celery\n", []),
    ],
)  # fmt: skip
def test_a_word_is_found_wherever_it_stands(tmp_path: Path, text: str, words: list[str]) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tasks.py").write_text(text)
    code = 5 if words else 0
    command = ["dueline", "-o", "json", "import", "celery", "--check", "shop.tasks:app"]
    said = run(command, tmp_path, code, "the check")
    found = json.loads(said[: said.rindex("}") + 1])["data"]
    assert [entry["word"] for entry in found] == words
    assert all(entry["place"].startswith("shop/tasks.py:") for entry in found)


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = run(["dueline", "import", "celery", "--check", "nowhere:app"], tmp_path, 7, "the check")
    assert "no module 'nowhere'" in said
