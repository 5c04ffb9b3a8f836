"""The HTTP listener of a worker: metrics, probes, and how many workers are needed."""

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from dueline.admin.scaling import Scale, scale_of
from dueline.api.probe_server import ProbeServer
from dueline.coordination import worker_registry
from dueline.core.clock import SECOND_US
from dueline.core.durations import parse_span
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, ConfigError, DuelineError
from dueline.foresight.target import Target, target_of
from dueline.worker.tally import Tally
from dueline.worker.worker import LIVE_WITHIN_US, Worker

ANSWER_S_MAX: Final = 8.0
"""Maximum duration of an answer, in seconds; then the answer is that the store is late."""

QUEUES_MAX: Final = 20
"""Maximum number of queues that one request names."""

SCALED_EVERY_S: Final = 5.0
"""Minimum time between two reads of the same queues, in seconds."""

WITHIN, AHEAD, SHARE = "30s", "10s", 0.99
"""Without a target, this share of jobs should start within this time."""

_LIVEZ: Final = re.compile(rb"(?:GET|HEAD) /livez[ ?]")
_LATE: Final = (
    b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Cache-Control: no-store\r\n\r\nThe store does not answer in time.\n"
)

_log = logging.getLogger("dueline.http")


class Answer(NamedTuple):
    """The response to a request."""

    status: HTTPStatus
    body: str
    kind: str = "text/plain; charset=utf-8"


class Listener:
    """What a worker answers.

    Args:
      engine: The store.
      worker: The worker.
      tally: What the worker counted.
      slots: Its slots.
    """

    def __init__(self, engine: Engine, worker: Worker, tally: Tally, slots: int) -> None:
        self._engine = engine
        self._worker = worker
        self._tally = tally
        self._slots = slots
        self._lock = threading.Lock()
        self._scales: dict[tuple[object, ...], tuple[float, Scale]] = {}
        self._write_metrics = self._metrics_writer()

    def _metrics_writer(self) -> Callable[[str], tuple[str, str]] | None:
        """Return what writes all metrics in a format; None without prometheus-client."""
        try:
            from prometheus_client import REGISTRY, CollectorRegistry  # noqa: PLC0415  (an extra)
            from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

            from dueline.admin.metrics import (  # noqa: PLC0415
                StoreMetrics,
                WorkerMetrics,
                kind_of,
            )
        except ImportError as error:
            _log.warning("/metrics needs %s: pip install 'dueline[web]'", error.name)
            return None
        own = CollectorRegistry()
        own.register(WorkerMetrics(self._tally.totals, self._worker.load, kind_of(self._engine)))
        own.register(StoreMetrics(self._engine))

        class Both:
            """The metrics of dueline, then those that the application registered."""

            def collect(self) -> Iterator[Any]:
                yield from own.collect()
                yield from REGISTRY.collect()

        def write(accept: str) -> tuple[str, str]:
            encode, kind = choose_encoder(accept)
            return encode(Both()).decode(), kind

        return write

    def answer(self, path: str, query: Mapping[str, list[str]], accept: str) -> Answer:
        """Return the response to a GET request."""
        if path == "/metrics":
            return self._metrics(accept)
        if path == "/livez":
            return self._live()
        if path == "/readyz":
            return self._ready()
        if path == "/scale":
            return self._scale(query)
        return Answer(HTTPStatus.NOT_FOUND, "Use /metrics, /livez, /readyz or /scale?queue=NAME.\n")

    def _metrics(self, accept: str) -> Answer:
        if self._write_metrics is None:
            text = "Metrics need an extra: pip install 'dueline[web]'\n"
            return Answer(HTTPStatus.NOT_IMPLEMENTED, text)
        return Answer(HTTPStatus.OK, *self._write_metrics(accept))

    def _live(self) -> Answer:
        ago_us = self._worker.turned_ago_us()
        if ago_us > LIVE_WITHIN_US:
            text = f"The worker's loop has not turned for {ago_us // SECOND_US} s.\n"
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, text)
        return Answer(HTTPStatus.OK, "alive\n")

    def _ready(self) -> Answer:
        load = self._worker.load()
        if load.is_draining:
            why = "The worker is draining."
        elif load.is_quiet:
            why = "The worker is quiet: it claims no jobs until it is resumed."
        elif len(load.lost) >= load.slots:
            why = "All slots are lost: their handlers go on after their time limits. Restart it."
        elif self._worker.is_claiming is None:
            why = "The worker has not asked for jobs yet."
        else:
            why = self._silence()
        if why:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}\n")
        return Answer(HTTPStatus.OK, "ready\n")

    def _silence(self) -> str:
        """Return why the store cannot be used; empty if it can."""
        try:
            self._engine.store.read(worker_registry.PARTITION, after=None, limit=1)
        except DuelineError as error:
            return f"The store does not answer: {error.message}"
        if not self._worker.is_claiming:
            return "The worker claims no jobs: its last call of the store failed."
        return ""

    def _scale(self, query: Mapping[str, list[str]]) -> Answer:
        try:
            names, target, ahead_us = asked(query)
            if unknown := set(names).difference(self._engine.catalog.names()):
                text = f"There is no queue {min(unknown)!r:.80}.\n"
                return Answer(HTTPStatus.NOT_FOUND, text)
            scale = self._scale_of(names, target, ahead_us)
        except BadInput as error:
            return Answer(HTTPStatus.BAD_REQUEST, f"{error.message}\n")
        except DuelineError as error:  # not 0 workers: nobody knows
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n")
        if query.get("format", [""])[-1] == "plain":
            return Answer(HTTPStatus.OK, f"{scale.desired_workers}\n")
        body = json.dumps({"queues": names, **asdict(scale)})
        return Answer(HTTPStatus.OK, f"{body}\n", "application/json")

    def _scale_of(self, names: tuple[str, ...], target: Target, ahead_us: int) -> Scale:
        key = (names, target, ahead_us)
        with self._lock:
            now_s = time.monotonic()
            self._scales = {
                key: kept for key, kept in self._scales.items() if now_s - kept[0] < SCALED_EVERY_S
            }
            if key not in self._scales:
                scale = scale_of(
                    self._engine, names, slots=self._slots, target=target, ahead_us=ahead_us
                )
                self._scales[key] = (time.monotonic(), scale)
            return self._scales[key][1]


def asked(query: Mapping[str, list[str]]) -> tuple[tuple[str, ...], Target, int]:
    """Return the queues of a request for a scale, its target, and how far ahead jobs count.

    Raises:
      BadInput: It names no queues, or too many; or a time or the target cannot be read.
    """
    names = {name for text in query.get("queue", []) for name in text.split(",")}
    if not 0 < len(names) <= QUEUES_MAX:
        raise BadInput(f"Name 1 to {QUEUES_MAX} queues.", hint="Use /scale?queue=mail.")
    target = Target(SHARE, parse_span(query.get("within", [WITHIN])[-1]))
    if "target" in query:
        target = target_of(query["target"][-1])
    ahead_us = parse_span(query.get("ahead", [AHEAD])[-1])
    if target.most_us <= 0:
        raise BadInput("`within` must be more than 0.", hint="Use within=30s.")
    return tuple(sorted(names)), target, ahead_us


@contextmanager
def listening(address: tuple[str, int], listener: Listener) -> Iterator[int]:
    """Answer requests while the block runs; yield the port.

    Raises:
      ConfigError: The address is not free, or not one of this machine.
    """
    socket_ = _bound(address)
    port: int = socket_.getsockname()[1]
    _log.info("listening on %s, port %d", address[0], port)
    handler = type("Handler", (_Handler,), {"answers": listener})
    server = ProbeServer(
        lambda head: _answered(handler, head),
        is_quick=lambda head: _LIVEZ.match(head) is not None,
        late=_LATE,
        answer_s_max=ANSWER_S_MAX,
    )
    with closing(socket_), server.serving(socket_):
        yield port


def _bound(address: tuple[str, int]) -> socket.socket:
    host, port = address
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {host:.80}, port {port}: {error.strerror}.",
            hint="Use another address: --http 127.0.0.1:9465.",
        ) from error


def _answered(handler: "type[_Handler]", head: bytes) -> bytes:
    """Return the response to the head of a request."""
    exchange = _Exchange(head)
    handler(exchange, ("", 0), None)  # type: ignore[arg-type]
    return exchange.written.getvalue()


class _Exchange:
    """What a handler takes for a socket: a request that has arrived, and where the answer goes."""

    def __init__(self, head: bytes) -> None:
        self._head = head
        self.written = BytesIO()

    def makefile(self, *_: object) -> BytesIO:
        """Return what is read."""
        return BytesIO(self._head)

    def sendall(self, data: bytes) -> None:
        """Keep what is written."""
        self.written.write(data)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD."""

    answers: Listener
    server_version = "dueline"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        url = urlsplit(self.path)
        try:
            query = parse_qs(url.query, max_num_fields=QUEUES_MAX + 3)
        except ValueError:
            answer = Answer(HTTPStatus.BAD_REQUEST, "The query has too many fields.\n")
        else:
            answer = self.answers.answer(url.path, query, self.headers.get("accept", ""))
        body = answer.body.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002, ANN401
        _log.debug(format, *arguments)
