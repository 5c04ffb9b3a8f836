"""A browser without a screen: requests to the dashboard, its cookies and forms."""

import asyncio
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
from starlette.types import ASGIApp

from dueline import Dueline, Retry, chord
from dueline.web.server import bound, server_of

HOST = "127.0.0.1"
STATUS_S_MAX = 120.0

PATHS = (
    "/", "/jobs", "/jobs?q=state:dead", "/jobs?q=state:done", "/dead", "/queues", "/queues/mail",
    "/tasks", "/workers", "/schedules", "/limits", "/workflows", "/functions", "/batches",
    "/streams", "/streams/clicks", "/store", "/audit", "/jobs/change?q=queue:mail&what=cancel",
    "/workers/change?what=stop",
)  # fmt: skip


class Visitor:
    """One browser, at the machine of the dashboard unless an address is given."""

    def __init__(
        self, app: ASGIApp, *, address: str = HOST, base: str = f"http://{HOST}:8321"
    ) -> None:
        self._app, self._address, self.base = app, address, base
        self.cookies = httpx.Cookies()

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        """Send a request as it is."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, client=(self._address, 1))
            async with httpx.AsyncClient(
                transport=transport, base_url=self.base, cookies=self.cookies
            ) as client:
                answer = await client.request(method, path, **options)
                self.cookies = client.cookies
                return answer

        return asyncio.run(send())

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Open a page."""
        return self.send("GET", path, headers=headers)

    def text(self, path: str) -> str:
        """Open a page that is there, and return its HTML."""
        answer = self.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])
        return answer.text

    def csrf(self, base: str = "") -> str:
        """Return the secret of this browser's forms."""
        match = re.search(r'name="csrf" value="([0-9a-f]{32})"', self.get(f"{base}/login").text)
        assert match
        return match[1]

    def post(
        self,
        path: str,
        form: Mapping[str, str] = {},
        *,
        follow: bool = False,
        headers: Mapping[str, str] = {},
    ) -> httpx.Response:
        """Send a form, as the page that shows it would."""
        csrf = "" if "csrf" in form else self.csrf()
        sent = {"origin": self.base, **headers}
        answer = self.send("POST", path, data={"csrf": csrf, **form}, headers=sent)
        return self.get(answer.headers["location"]) if follow else answer


class Shop:
    """An application with jobs in every state, a workflow, a stream, a limit and a schedule.

    `evil` is the text of every field that users write.
    """

    evil = "<script>alert(1)</script>\u202e\x1b[31m\"'>"

    def __init__(self, url: str) -> None:
        """Store the jobs, and run those that are due."""
        self.app = app = Dueline(url)

        @app.task(name="shop.send", queue="mail", retry=Retry(attempts=1))
        def send(to: str, password: str = "") -> object:
            if to == "nobody":
                raise ValueError(f"no mailbox for {to} {self.evil}")
            return {"to": to, "token": password, "note": self.evil}

        @app.task(name="shop.flaky", queue="mail", retry=Retry(attempts=5, base=3000, cap=3600))
        def flaky() -> None:
            raise TimeoutError("mail server 17 timed out")

        @app.task(name="shop.total")
        def total(parts: list[object]) -> int:
            return len(parts)

        self.send = send
        app.semaphore("gpu", capacity=2)
        app.rate("bank", 20, per=1)
        app.schedule("nightly", send, ("board",), cron="30 3 * * *")
        self.done = send.using(tags=["big"]).enqueue("ann", "hunter2").id
        self.dead = send.using(tenant="acme").enqueue("nobody").id
        self.retrying = flaky.enqueue().id
        later = send.using(after=3600, priority=5, tenant="acme", tags=[self._tag()])
        self.scheduled = later.enqueue(self.evil, "hunter2").id
        self.flow = app.start(
            chord([send.step("ann"), send.step("nobody")], total.step()), name=self.evil
        ).id
        app.run_worker(["mail", "default"], burst=True, monitor=False)
        self.ready = app.unchecked(f"shop.{self._word()}", queue="slow").enqueue().id
        self.clicks = app.stream("clicks", shards=3)
        self.clicks.append_many([({"n": n}, str(n)) for n in range(9)])
        self.clicks.consumer("billing")(lambda _: None)

    def paths(self) -> list[str]:
        """Return an address of every page."""
        ids = (self.done, self.dead, self.retrying, self.scheduled, self.ready)
        return [*PATHS, *(f"/jobs/{job_id}" for job_id in ids), f"/workflows/{self.flow}"]

    def _tag(self) -> str:
        return "<b>tag</b>"

    def _word(self) -> str:
        return "<img src=x onerror=alert(1)>"


@contextmanager
def serving(pages: ASGIApp) -> Iterator[str]:
    """Serve pages from a thread while the block runs; give their address."""
    listening = bound(HOST, 0)
    server = server_of(pages)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listening.close()


def status_of(url: str, *, method: str = "GET") -> int:
    """Return the status of a response of a server; 0 if nobody listens."""
    try:
        return httpx.request(method, url, timeout=STATUS_S_MAX, follow_redirects=True).status_code
    except httpx.TransportError:
        return 0
