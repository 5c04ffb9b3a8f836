"""Jobs of a Flask application (A9)."""

from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("flask")

from flask import Flask, current_app

from dueline import Dueline
from dueline.api.config import place_of
from dueline.api.loading import load_app
from dueline.contrib.flask import init_app
from dueline.core.errors import ConfigError

PLACE = "dueline.contrib.flask:app"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the command line was given; it exits with the number of such calls less one."""
    words: list[list[str]] = []

    def run(given: list[str]) -> int:
        words.append(given)
        return len(words) - 1

    monkeypatch.setattr(import_module("dueline.cli.main"), "run", run)
    monkeypatch.setenv("FLASK_APP", "none")
    return words


def made() -> tuple[Dueline, Flask]:
    app, web = Dueline(), Flask("shop", root_path="/")
    web.config["DUELINE_STORE"] = "memory://"
    init_app(app, web)
    return app, web


def test_handlers_run_in_the_context_of_the_application() -> None:
    app, web = made()
    ended: list[str] = []

    @app.task(name="name")
    def name() -> str:
        return current_app.name

    @app.task(name="name_later")
    async def name_later() -> str:
        return current_app.name

    @web.teardown_appcontext
    def end(error: BaseException | None) -> None:
        ended.append(repr(error))

    jobs = [name.enqueue(), name_later.enqueue()]
    app.run_worker(burst=True)
    assert [job.result(timeout=5) for job in jobs] == ["shop", "shop"]
    assert ended == ["None", "None"]
    assert web.extensions["dueline"] is app


def test_the_last_application_is_the_one_that_handlers_run_in(tmp_path: Path) -> None:
    app, _ = made()

    @app.task(name="name")
    def name() -> str:
        return current_app.name

    first = name.enqueue()
    for number, url in enumerate(["memory://", f"sqlite:///{tmp_path}/jobs.db"]):
        web = Flask(f"shop{number}", root_path="/")
        web.config["DUELINE_STORE"] = url
        init_app(app, web)
        job = name.enqueue()
        app.run_worker(burst=True)
        assert job.result(timeout=5) == f"shop{number}"
        if number == 0:  # the store is still the same
            assert first.result(timeout=5) == "shop0"
    app.close()


def test_the_command_passes_its_words_on(ran: list[list[str]]) -> None:
    runner = made()[1].test_cli_runner()
    assert runner.invoke(args=["dueline", "worker", "-q", "mail:4", "--help"]).exit_code == 0
    assert runner.invoke(args=["dueline", "jobs"]).exit_code == 1
    assert ran == [["--app", PLACE, "worker", "-q", "mail:4", "--help"], ["--app", PLACE, "jobs"]]


def test_processes_find_the_application_by_the_current_one() -> None:
    app, web = made()
    assert place_of(app) == PLACE
    with web.app_context():
        assert load_app(PLACE) is app
    with web.app_context(), pytest.raises(ConfigError, match="has no 'other'"):
        load_app("dueline.contrib.flask:other")
