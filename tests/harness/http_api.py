"""A program that uses the HTTP API."""

from typing import Any

import httpx

from tests.harness.web import Visitor


class Program(Visitor):
    """Sends JSON, with a token if one is given."""

    token = ""

    def call(
        self, method: str, path: str, body: object = None, *, status: int = 200, **headers: str
    ) -> Any:  # noqa: ANN401  (JSON)
        """Send a request, check the status of its answer, and return its JSON."""
        answer = self.ask(method, path, body, **headers)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:500])
        kind = "application/json" if status < 400 else "application/problem+json"
        assert answer.headers["content-type"] == kind
        return answer.json()

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> httpx.Response:
        """Send a request."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            sent["authorization"] = f"Bearer {self.token}"
        more = {} if body is None else {"json": body}
        return self.send(method, path, headers=sent, **more)
