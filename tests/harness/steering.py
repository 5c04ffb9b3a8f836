"""Requests of operators to the only worker."""

from dueline.coordination import worker_requests
from dueline.coordination.worker_registry import Presence, present
from dueline.coordination.worker_requests import RequestKind, WorkerAnswer
from dueline.core.engine import Engine


def ask(engine: Engine, kind: RequestKind) -> str:
    """Send a request to the only worker."""
    return worker_requests.send(engine, kind, present(engine.store))


def answer_to(engine: Engine, request: str) -> WorkerAnswer | None:
    """Read what the only worker answered to a request."""
    answers = list(worker_requests.answers(engine.store).values())
    return answers[0] if answers and answers[0].request == request else None


def presence_of(engine: Engine) -> Presence:
    """Read what the only worker reports."""
    (worker,) = present(engine.store)
    return worker
