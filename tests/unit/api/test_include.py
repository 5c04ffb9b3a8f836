"""Modules that workers import: `include` and `discover`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import BadInput, ConfigError, Dueline
from dueline.api.loading import load_app
from tests.harness.shell import Shell

APP = """
from dueline import Dueline

app = Dueline("sqlite:///jobs.db")
"""
TASKS = """
from shop.app import app

@app.task(queue="{queue}")
def send(to: str) -> str:
    return to
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a package of three levels, and be beside it."""
    files = {
        "shop/__init__.py": "", "shop/app.py": APP, "shop/web.py": "raise SystemExit",
        "shop/tasks.py": TASKS.format(queue="a"),
        "shop/orders/__init__.py": "", "shop/orders/tasks/__init__.py": "",
        "shop/orders/tasks/mail.py": TASKS.format(queue="b"),
        "shop/orders/views.py": "raise SystemExit",
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)  # of other tests
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in [one for one in sys.modules if one.partition(".")[0] == "shop"]:
        del sys.modules[name]


def write_app(folder: Path, line: str) -> None:
    text = APP + line + "\n"
    (folder / "shop" / "app.py").write_text(text, encoding="utf-8")


ALL = ["shop.orders.tasks.mail.send", "shop.tasks.send"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ('app.include("shop.tasks")', ALL[1:]),
        ('app.include("shop.tasks", "shop.orders.tasks.mail")', ALL),
        ('app.discover("shop")', ALL),
        ('app.discover("shop.orders")', ALL[:1]),
        ('app.discover("shop", name="mail")', ALL[:1]),
    ],
)
def test_included_modules_are_imported_when_tasks_are_asked_for(
    folder: Path, line: str, names: list[str]
) -> None:
    write_app(folder, line)
    app = load_app("shop.app:app")
    assert "shop.tasks" not in sys.modules
    assert sorted(app.tasks) == names
    app.close()


def test_a_worker_serves_the_queues_of_included_tasks(folder: Path) -> None:
    write_app(folder, 'app.discover("shop")')
    app = load_app("shop.app:app")
    assert set(app.serving(None)) == {"default", "a", "b"}
    job = app.task_named("shop.tasks.send").enqueue("ann")
    app.run_worker(concurrency=1, burst=True)
    assert job.result(0) == "ann"
    app.close()


def test_a_module_may_be_imported_first(folder: Path) -> None:
    write_app(folder, 'app.include("shop.tasks")')
    import shop.tasks  # type: ignore[import-not-found]  # noqa: PLC0415

    assert sorted(shop.app.app.tasks) == ALL[1:]


def test_the_argument_names_modules_too() -> None:
    assert Dueline("memory://", include=["json"]).tasks == {}


def test_children_import_them_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_app(folder, 'app.include("shop.tasks")')
    shell = Shell(folder, capsys)
    shell("--app", "shop.app:app", "enqueue", "shop.tasks.send", "ann")
    worker = shell.spawn("worker", "shop.app:app", "--burst", "--processes", "1")
    _, error = worker.communicate(timeout=60)
    assert worker.returncode == 0, error
    assert (
        "shop.tasks.send" in shell("--app", "shop.app:app", "jobs", "list", "--state", "done").out
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('app.include("shop.tsks")', r"included module 'shop.tsks' cannot be imported"),
        ('app.include("shop.broken")', r"'shop.broken' fails while it is imported: ValueError"),
        ('app.discover("shp")', r"package 'shp' cannot be imported"),
        ('app.discover("shop", name="jobs")', r"package 'shop' has no module named 'jobs'"),
    ],
)
def test_what_cannot_be_imported_is_named(folder: Path, line: str, message: str) -> None:
    (folder / "shop" / "broken.py").write_text("raise ValueError", encoding="utf-8")
    write_app(folder, line)
    app = load_app("shop.app:app")
    for _ in range(2):  # the second time it is not taken for done
        with pytest.raises(ConfigError, match=message) as raised:
            _ = app.tasks
        assert raised.value.hint


@pytest.mark.parametrize("wrong", [5, "", None])
def test_only_names_are_included(wrong: object) -> None:
    app = Dueline("memory://")
    with pytest.raises(BadInput):
        app.include(wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        app.discover(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["app", "shop.app:application", "shop.ap", "shop.tasks:APP"])
def test_a_wrong_place_names_the_applications_that_were_found(folder: Path, place: str) -> None:
    (folder / "other.py").write_text("import dueline\nqueue = dueline.Dueline('memory://')\n")
    with pytest.raises(ConfigError) as raised:
        load_app(place)
    assert raised.value.hint.endswith("Found here: other:queue, shop.app:app.")


def test_an_application_that_fails_is_not_named_again(folder: Path) -> None:
    (folder / "other.py").write_text("from dueline import Dueline\napp = Dueline('x:')\n1 / 0\n")
    for place in ("other", "other:app"):
        with pytest.raises(ConfigError, match="ZeroDivisionError") as raised:
            load_app(place)
        assert "Found here" not in raised.value.hint
