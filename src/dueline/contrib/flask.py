"""Jobs of a Flask application: handlers run in its context, and `flask dueline` runs workers."""

import os
import sys
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from dueline.api.application import Dueline
from dueline.core.extras import extra

with extra("flask", is_package=True):
    import click
    from flask import Flask, current_app, has_app_context
    from flask.cli import ScriptInfo

_NAME = "dueline"
_webs: WeakKeyDictionary[Dueline, Flask] = WeakKeyDictionary()


def init_app(app: Dueline, web: Flask) -> None:
    """Connect an application of dueline with one of Flask.

    Handlers run in `web.app_context()`. `web.config["DUELINE_STORE"]`, if it is set, is the URL of
    the store. `flask dueline worker` and the other commands of dueline use this application.
    Another call connects `app` with another Flask application instead, as tests do.

    Args:
        app: The application with the tasks.
        web: The Flask application; `web.extensions["dueline"]` is `app` from now on.
    """
    url = web.config.get("DUELINE_STORE")
    if url is not None and not (app.is_open and app.url == url):
        app.close()
        app.use_store(url)
    app.place = f"{__name__}:app"  # child processes of workers find it by FLASK_APP
    if app not in _webs:
        app.middleware(lambda _: _webs[app].app_context())
    _webs[app] = web
    web.extensions[_NAME] = app
    web.cli.add_command(_command)


@click.command(
    _NAME,
    short_help="Run a command of dueline, such as `worker`.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def _command(context: click.Context, words: tuple[str, ...]) -> None:
    """Run a command of dueline with the jobs of this application."""
    info = context.ensure_object(ScriptInfo)
    if info.app_import_path:
        os.environ["FLASK_APP"] = info.app_import_path  # for child processes
    with info.load_app().app_context():
        # By name, because the command line is above this package.
        code = import_module("dueline.cli.main").run(["--app", f"{__name__}:app", *words])
    if code:
        sys.exit(code)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Return the application of dueline that belongs to Flask's current one, or to FLASK_APP."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    web = current_app if has_app_context() else ScriptInfo(os.environ.get("FLASK_APP")).load_app()
    return web.extensions[_NAME]
