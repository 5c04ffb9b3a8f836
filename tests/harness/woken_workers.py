"""Workers that only wake-ups make poll."""

from dueline import Dueline

WORKER = """
import sys
from dueline.api import launch
from dueline.worker import backoff as pace
from tests.harness.woken_workers import app_on
launch.FALLBACK_US = pace.GAP_US_MIN = 3_600_000_000  # it never looks twice by itself

app = app_on(sys.argv[1])
print("ready", flush=True)
app.run_worker(["default"], concurrency=2)
"""


def app_on(url: str) -> Dueline:
    app = Dueline(url)

    @app.task(name="tests.echo")
    def echo(text: str) -> str:
        return text

    @app.task(name="tests.pass_on")
    def pass_on(text: str) -> str:
        return echo.enqueue(text).id

    return app
