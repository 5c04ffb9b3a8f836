"""Take pictures of the dashboard over the shop of `examples/shop`, in headless Chromium.

    python -m tools.screenshots [--all FOLDER] [--seconds 40]

Those of the documentation go to `docs/images/dashboard`; `--all` takes every page, at both widths,
light and dark.
"""

import argparse
import logging
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import sync_playwright

from dueline.web import dashboard
from dueline.web.server import bound, server_of
from examples.shop.run import Shop

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "dashboard"
CHROMIUM = "/usr/bin/chromium"
SIZES = {1280: 800, 390: 780}
BYTES_MAX = 150_000
CHARTS_S = 3

PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "filter": "/jobs?q=state:retrying+error:timed",
    "confirm": "/jobs/change?q=state:retrying+error:timed&what=retry",
    "dead": "/dead",
    "queues": "/queues",
    "queue": "/queues/payments",
    "workers": "/workers",
    "schedules": "/schedules",
    "limits": "/limits",
    "workflows": "/workflows",
    "streams": "/streams",
    "store": "/store",
    "audit": "/audit",
}
"""Pages with a fixed address; a job and a workflow are added."""


class Picture(NamedTuple):
    """A picture of a page."""

    page: str
    width: int
    scheme: str

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self.page}-{self.width}-{self.scheme}.png"


SHOWN = (
    *(Picture(page, 1280, "light") for page in (*PAGES, "job", "running", "workflow")),
    Picture("overview", 1280, "dark"),
    Picture("workflow", 1280, "dark"),
    *(Picture(page, 390, "light") for page in ("overview", "jobs")),
    *(Picture(page, 390, "dark") for page in ("overview", "running")),
)
"""The pictures of the documentation."""


def every_picture() -> Iterator[Picture]:
    """Yield the pictures of all pages."""
    for page in (*PAGES, "job", "running", "workflow"):
        for width in SIZES:
            for scheme in ("light", "dark"):
                yield Picture(page, width, scheme)


def take(browser: Any, base: str, pictures: Sequence[Picture], folder: Path) -> None:  # noqa: ANN401
    """Take pictures, those of one width and scheme in one window."""
    folder.mkdir(parents=True, exist_ok=True)
    for width, scheme in sorted({(one.width, one.scheme) for one in pictures}):
        size = {"width": width, "height": SIZES[width]}
        page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
        paths = {**PAGES, **_found(page, base)}
        for one in pictures:
            if (one.width, one.scheme) == (width, scheme):
                page.goto(base + paths[one.page])
                if one.page == "store":
                    page.wait_for_selector("text=Facts")
                page.wait_for_timeout(1000 * CHARTS_S if one.page == "overview" else 300)
                path = folder / one.name
                page.screenshot(path=str(path), full_page=one.page == "overview")
                wide = page.evaluate("document.documentElement.scrollWidth")
                notes = [
                    *(["is too large"] if path.stat().st_size > BYTES_MAX else []),
                    *(["scrolls sideways"] if wide > width else []),
                ]
                print(path.name, path.stat().st_size, *notes)


def _found(page: Any, base: str) -> dict[str, str]:  # noqa: ANN401
    """Return the addresses of a dead job, a running job with progress, and a workflow."""
    found = {}
    for name, path in (
        ("job", "/jobs?q=state:dead+task:shop.mail.send"),
        ("running", "/jobs?q=state:running+task:shop.media.resize"),
        ("workflow", "/workflows"),
    ):
        page.goto(base + path)
        found[name] = page.locator("td a.id").last.get_attribute("href")
    return found


def main() -> None:
    """Run the shop for a while, then take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="take every page into a folder")
    parser.add_argument("--seconds", type=float, default=40, help="how long the shop runs before")
    asked = parser.parse_args()
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(f"sqlite:///{folder}/shop.db")
        shop.fill()
        listening = bound("127.0.0.1", 0)
        server = server_of(dashboard(shop.app, role="admin", title="sqlite:///shop.db"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with shop.open(), sync_playwright() as driver:
            thread.start()
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            watching = browser.new_page()
            watching.goto(base)  # which begins the chart of the backlog
            time.sleep(asked.seconds)
            _operate(shop)
            if asked.all:
                take(browser, base, list(every_picture()), asked.all)
            else:
                take(browser, base, SHOWN, FOLDER)
            browser.close()
            server.should_exit = True
            thread.join()
        shop.app.close()


def _operate(shop: Shop) -> None:
    """Change something, so that there is a record of it."""
    operations = shop.app.admin.operations("ann")
    operations.pause("reports")
    operations.resume("reports")
    operations.set_capacity("gpu", 3)
    like = shop.app.admin.filter("state:dead task:shop.pay.charge")
    operations.bulk("retry", like, "state:dead task:shop.pay.charge")
    operations.schedule("trigger", "send-digest")


if __name__ == "__main__":
    main()
