"""A receiver of webhooks, and an application that calls it."""

import base64
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, NamedTuple

from dueline import Cancel, Dueline, Retry
from dueline.jobs.webhooks import QUEUE

KEY = "a-secret-of-the-tests"


class Received(NamedTuple):
    """A request whose signature holds."""

    id: str
    path: str
    event: dict[str, Any]

    @property
    def job(self) -> tuple[str, str]:
        """The job, and how it ended."""
        return self.event["data"]["id"], self.event["data"]["state"]


class Receiver(BaseHTTPRequestHandler):
    """Keeps what is signed; answers 204, or 500 as often as a test asks for it."""

    received: ClassVar[list[Received]]
    refuse: ClassVar[list[int]]

    def do_POST(self) -> None:
        """Take a webhook."""
        body = self.rfile.read(int(self.headers["content-length"]))
        sent = self.headers["webhook-id"]
        content = f"{sent}.{self.headers['webhook-timestamp']}.".encode() + body
        digest = base64.b64encode(hmac.digest(KEY.encode(), content, "sha256")).decode()
        assert f"v1,{digest}" in self.headers["webhook-signature"].split()
        status = self.refuse.pop() if self.refuse else 204
        if status == 204:
            self.received.append(Received(sent, self.path, json.loads(body)))
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (as in the base class)
        """Print nothing."""


@contextmanager
def receiving() -> Iterator[tuple[str, type[Receiver]]]:
    """Receive webhooks at an address."""
    kind = type("Kept", (Receiver,), {"received": [], "refuse": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hooks?token=hidden", kind
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def shop(url: str) -> Dueline:
    """Make an application whose jobs end in each way."""
    app = Dueline(url)
    app.webhooks(secret=KEY, allow=["127.0.0.1"], retry=Retry.fixed(0, attempts=5))

    @app.task(name="does", retry=Retry(attempts=1))
    def does(what: str) -> str:
        if what == "dead":
            raise ValueError("no")
        if what == "cancelled":
            raise Cancel("not now")
        return what

    return app


def work(app: Dueline) -> None:
    """Run what is due, and what that inserts."""
    app.run_worker(["default", QUEUE], burst=True, concurrency=4)
    app.run_worker([QUEUE], burst=True, concurrency=4)
