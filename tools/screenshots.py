"""Take pictures of the dashboard over the shop of `examples/shop`, in headless Chromium.

    python -m tools.screenshots [--folder FOLDER] [--seconds 40]

Every page is taken at both widths, light and dark. Fails if a page has an error on its console,
scrolls sideways, or has an empty chart.
"""

import argparse
import base64
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from dueline.web import dashboard
from dueline.web.server import bound, server_of
from examples.shop.run import Shop

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "dashboard"
CHROMIUM = "/usr/bin/chromium"
SIZES = {1280: 800, 390: 844}
HEIGHT_MAX = 1_600
"""Maximum height of a picture; the lower part of a longer page is left out."""

BYTES_MAX = 3_000_000
"""Maximum size of all pictures."""

WAIT_S = 10
QUALITY = 72

PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "filter": "/jobs?q=state:retrying+error:timed",
    "confirm": "/jobs/change?q=state:retrying+error:timed&what=retry",
    "dead": "/dead",
    "tasks": "/tasks",
    "queues": "/queues",
    "queue": "/queues/payments",
    "workers": "/workers",
    "schedules": "/schedules",
    "limits": "/limits",
    "workflows": "/workflows",
    "functions": "/functions",
    "streams": "/streams",
    "store": "/store",
    "audit": "/audit",
}
"""Pages with a fixed address."""

LISTED = {
    "job": ("/jobs?q=state:dead+task:shop.mail.send", ""),
    "running": ("/jobs?q=state:running+task:shop.media.resize", ""),
    "workflow": ("/workflows", ""),
    "function": ("/functions?name=page.publish", ""),
    "stopped": ("/functions?state=stopped", ""),
    "signal": ("/functions?name=page.publish", "/change?what=signal"),
}
"""Pages of the last job, workflow or function of a list, and what follows in the address."""

READY = {
    "overview": "#charts canvas",
    "tasks": ".spark",
    "store": "text=Facts",
    "running": "progress",
}
"""What a page shows only after a while."""

_LINES = """() => [...document.querySelectorAll(".chart")].map((chart) => {
  const canvas = chart.querySelector("canvas");
  const probe = document.createElement("canvas").getContext("2d");
  const style = getComputedStyle(document.documentElement);
  probe.fillStyle = style.getPropertyValue("--bar-normal").trim();
  probe.fillRect(0, 0, 1, 1);
  const wanted = probe.getImageData(0, 0, 1, 1).data;
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const isNear = (n) => [0, 1, 2].every((one) => Math.abs(data[n + one] - wanted[one]) < 24);
  let count = 0;
  for (let n = 0; n < data.length; n += 4) count += data[n + 3] > 200 && isNear(n);
  return count;
})"""
"""Counts the pixels of the first line of each chart."""

LINE_PIXELS_MIN = 60


def take(browser: Any, base: str, folder: Path) -> Iterator[str]:  # noqa: ANN401
    """Take all pictures, those of one width and scheme in one window; yield what is wrong."""
    for width, scheme in product(SIZES, ("light", "dark")):
        size = {"width": width, "height": SIZES[width]}
        page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
        errors = _errors_of(page)
        for name in (*PAGES, *LISTED):
            path, rest = LISTED.get(name, (PAGES.get(name, ""), ""))
            page.goto(base + path)
            if name in LISTED:
                page.goto(base + page.locator("td a.id").last.get_attribute("href") + rest)
            if name in READY:
                page.wait_for_selector(READY[name], timeout=1000 * WAIT_S)
            page.wait_for_timeout(300)
            faults = [*errors, *_faults(page, width, is_overview=name == "overview")]
            errors.clear()
            yield from (f"{name}, {width} px, {scheme}: {fault}" for fault in faults)
            picture = _picture(page, width)
            (folder / f"{name}-{width}-{scheme}.webp").write_bytes(picture)
            print(name, width, scheme, len(picture), *faults)


def _errors_of(page: Any) -> list[str]:  # noqa: ANN401
    """Return a list that gets the errors of a page's console as they come."""
    errors: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    return errors


def _faults(page: Any, width: int, *, is_overview: bool) -> Iterator[str]:  # noqa: ANN401
    if page.evaluate("document.documentElement.scrollWidth") > width:
        yield "it scrolls sideways"
    if is_overview:
        if min(page.evaluate(_LINES), default=0) < LINE_PIXELS_MIN:
            yield "a chart is empty"
        for band in ("high", "normal", "low"):
            if not page.locator(f".timeline rect.{band}").count():
                yield f"the timeline has no job of priority {band}"


def _picture(page: Any, width: int) -> bytes:  # noqa: ANN401
    """Return a picture of the page, as WebP: Playwright itself knows PNG and JPEG only."""
    height = min(HEIGHT_MAX, page.evaluate("document.documentElement.scrollHeight"))
    taken = page.context.new_cdp_session(page).send(
        "Page.captureScreenshot",
        {
            "format": "webp",
            "quality": QUALITY,
            "captureBeyondViewport": True,
            "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1},
        },
    )
    return base64.b64decode(taken["data"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the shop for a while, then take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pictures go")
    parser.add_argument("--seconds", type=float, default=40, help="how long the shop runs before")
    asked = parser.parse_args(arguments)
    logging.disable(logging.ERROR)
    asked.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="shop-") as folder:
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
            faults = list(take(browser, base, asked.folder))
            browser.close()
            server.should_exit = True
            thread.join()
        shop.app.close()
    size = sum(picture.stat().st_size for picture in asked.folder.glob("*.webp"))
    if size > BYTES_MAX:
        faults.append(f"the pictures have {size:,} bytes")
    if faults:
        sys.exit("\n".join(faults))


def _operate(shop: Shop) -> None:
    """Change something, so that there is a record of it."""
    operations = shop.app.admin.operations("ann")
    operations.pause("reports")
    operations.resume("reports")
    operations.set_capacity("gpu", 3)
    written = "queue:mail priority<0 due<2h"
    operations.bulk("cancel", shop.app.admin.filter(written), written)
    operations.schedule("trigger", "send-digest")


if __name__ == "__main__":
    main()
