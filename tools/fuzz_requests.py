"""Send generated requests to a dashboard, and check every answer: `tools.fuzz` runs this.

It needs schemathesis, which has an environment of its own (`requirements/fuzz.txt`).
"""

import json
import random
import sys
from collections import Counter
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import schemathesis  # type: ignore[import-not-found]  # in its own environment
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from openapi_spec_validator import validate  # type: ignore[import-not-found]  # see above
from schemathesis import GenerationMode

API = "/api/v1"
SHOWN_MAX = 20
EACH = 200
WAIT_S_MAX = 30
STRANGERS = (*["nobody"] * 5, "wrong")
"""Requests without a token are more: the dashboard answers one with a wrong token each second."""

TRIES = 3
"""Requests of one example: as an admin, as another role, and without a valid token."""

EVENTS = "text/event-stream"
KNOWN_MAX = 200

HOSTILE = [
    "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%00", "\u202e<script>alert(1)</script>",
    "'; DROP TABLE jobs; --", "${7*7}", "{{7*7}}", "A" * 5000, "\ud7ff\uffff", "-1", "1e999", "NaN",
]  # fmt: skip


class Sent(NamedTuple):
    """A request."""

    method: str
    path: str
    body: bytes | None
    headers: dict[str, str]


class Fuzz:
    """Requests to one server, and what was wrong with the answers.

    Args:
        plan: Address, tokens by role, pages, and the number of requests.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self.host = urlsplit(plan["address"]).netloc
        self.tokens: dict[str, str] = plan["tokens"]
        self.pages: list[str] = plan["pages"]
        self.chance = random.Random(plan["seed"])
        self.statuses: Counter[int] = Counter()
        self.asked: Counter[str] = Counter()
        self.faults: list[str] = []
        self.sent = 0
        self.known: dict[str, list[str]] = {"id": [], "token": []}
        self.connection = HTTPConnection(self.host, timeout=60)

    def send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes, dict[str, str]]:
        """Send a request; return status, body and headers. A refused connection is opened again."""
        self.sent += 1
        for _ in range(3):
            try:
                self.connection.request(method, path, body, headers)
                answer = self.connection.getresponse()
                response = answer.status, b"{}", dict(answer.getheaders())
                if answer.headers.get_content_type() == EVENTS:  # it may never end
                    self.connection.close()
                    self.connection = HTTPConnection(self.host, timeout=60)
                else:
                    response = answer.status, answer.read(), dict(answer.getheaders())
                break
            except (HTTPException, OSError):  # closed after an answer that ended early
                self.connection.close()
                self.connection = HTTPConnection(self.host, timeout=60)
        else:
            response = 0, b"no answer", {}
        self.statuses[response[0]] += 1
        return response

    def try_operation(self, sent: Sent, roles: set[str]) -> None:
        """Send a request to the API as an admin, as another role, and without a valid token."""
        other = self.chance.choice(["reader", "operator", "producer", "worker"])
        for role in ("admin", other, self.chance.choice(STRANGERS)):
            self._try(role, sent, roles)

    def _try(self, role: str, sent: Sent, roles: set[str]) -> None:
        method, path, body, headers = sent
        self.asked[role] += 1
        headers = {name: value for name, value in headers.items() if value.isascii()}
        headers.pop("Authorization", None)
        if role != "nobody":
            headers["Authorization"] = f"Bearer {self.tokens.get(role, 'a-token-that-is-wrong')}"
        status, answer, kinds = self.send(method, API + path, body, headers)
        what = f"{role} {method} {path[:200]} {(body or b'')[:300]!r}: {status} {answer[:300]!r}"
        if status >= 500 or status == 0:
            self.faults.append(f"error of the server: {what}")
        elif status < 400 and role in STRANGERS:
            self.faults.append(f"success without a token: {what}")
        elif status < 400 and roles.isdisjoint(INCLUDED[role]):
            self.faults.append(f"success with a wrong role: {what}")
        elif status >= 400 and "problem+json" not in kinds.get("content-type", ""):
            self.faults.append(f"not a problem document: {what}")
        if status < 300:
            self._learn(answer)

    def _learn(self, answer: bytes) -> None:
        """Remember ids and tokens, so that later requests reach something."""
        learned = json.loads(answer)
        jobs = learned if isinstance(learned, list) else learned.get("jobs", [learned])
        for job in jobs[:5]:
            for name, known in self.known.items():
                if isinstance(job, dict) and isinstance(job.get(name), str):
                    known.append(job[name])
                    del known[:-KNOWN_MAX]

    def try_page(self, path: str, form: dict[str, str] | None) -> None:
        """Open a page or send a form as somebody, and check the answer."""
        role = self.chance.choice([*self.tokens, *STRANGERS])
        self.asked[role] += 1
        headers = {}
        if role != "nobody":
            headers["Authorization"] = f"Bearer {self.tokens.get(role, 'a-token-that-is-wrong')}"
        body = None
        if form is not None:
            body = urlencode(form).encode("utf-8", "replace")
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        status, answer, _ = self.send("GET" if form is None else "POST", path, body, headers)
        what = f"{role} {path[:200]} {(body or b'')[:300]!r}: {status} {answer[:300]!r}"
        is_open = path.startswith(("/login", "/static")) or (status == 303 and form is None)
        if status >= 500 or status == 0:
            self.faults.append(f"error of the server: {what}")
        elif status < 400 and role in STRANGERS and not is_open:
            self.faults.append(f"success without a token: {what}")
        elif b"<script>alert(1)" in answer:
            self.faults.append(f"unescaped text: {what}")


INCLUDED: dict[str, set[str]] = {}


def fuzz_operation(
    fuzz: Fuzz,
    operation: Any,  # noqa: ANN401  (schemathesis has no types here)
    count: int,
    number: int,
) -> None:
    """Send generated requests to an operation: such that fit its schema, and such that do not."""
    text = operation.definition.raw.get("description", "")
    roles = set(text.rpartition("Needs the role ")[2].rstrip(".").split(" or "))

    def run(mode: Any, part: int) -> None:  # noqa: ANN401  (see above)
        @seed(number)
        @settings(max_examples=-(-part // TRIES), deadline=None, database=None,
                  phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(operation.as_strategy(generation_mode=mode))
        def once(case: Any) -> None:  # noqa: ANN401  (see above)
            if fuzz.sent < target:
                send_case(fuzz, case, roles)

        target = fuzz.sent + part
        for _ in range(10):  # a run may find fewer examples than it looks for
            with suppress(Unsatisfiable):  # nothing can be wrong with a request without values
                once()
            if fuzz.sent >= target:
                break

    run(GenerationMode.POSITIVE, count // 2)
    run(GenerationMode.NEGATIVE, count - count // 2)


def send_case(fuzz: Fuzz, case: Any, roles: set[str]) -> None:  # noqa: ANN401  (see above)
    """Send a generated request; ids and tokens are often those of real jobs."""
    path = case.path
    for name, value in (case.path_parameters or {}).items():
        text = path_value(fuzz, name, str(value))
        path = path.replace(f"{{{name}}}", quote(text, safe="%" if "%2" in text else ""))
    if case.query:
        path += "?" + urlencode(shortened(case.query), doseq=True, errors="replace")
    headers = {str(name): str(value) for name, value in (case.headers or {}).items()}
    headers = {name: value for name, value in headers.items() if value.isprintable() and value}
    body = None
    if case.body is not None and type(case.body).__name__ != "NotSet":
        body = body_of(fuzz, case.body)
        headers.setdefault("Content-Type", "application/json")
    fuzz.try_operation(Sent(case.method.upper(), path, body, headers), roles)


def path_value(fuzz: Fuzz, name: str, value: str) -> str:
    """Return a value for a part of a path."""
    if name == "id" and fuzz.known["id"] and fuzz.chance.random() < 0.6:
        return fuzz.chance.choice(fuzz.known["id"])
    if name == "name" and fuzz.chance.random() < 0.5:
        return "mail"
    return fuzz.chance.choice(HOSTILE) if fuzz.chance.random() < 0.05 else value


def shortened(values: Any) -> dict[str, Any]:  # noqa: ANN401  (see above)
    """Return fields in which no wait takes long."""
    fields = dict(values)
    wait = fields.get("wait")
    if isinstance(wait, int | float) and 0 < wait <= WAIT_S_MAX:
        fields["wait"] = 0.01
    return fields


def body_of(fuzz: Fuzz, value: Any) -> bytes:  # noqa: ANN401  (see above)
    """Return a body; one of twenty is damaged."""
    if isinstance(value, dict):
        value = shortened(value)
        if fuzz.known["token"] and "token" in value and fuzz.chance.random() < 0.6:
            value["token"] = fuzz.chance.choice(fuzz.known["token"])
    try:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
    except (TypeError, ValueError):
        body = repr(value).encode()
    return damaged(body, fuzz.chance) if fuzz.chance.random() < 0.05 else body


def damaged(body: bytes, chance: random.Random) -> bytes:
    """Return a body with a few wrong bytes, or a part of it."""
    data = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randint(0, len(data))]) if chance.random() < 0.3 else bytes(data)


def fuzz_pages(fuzz: Fuzz, count: int, number: int) -> None:
    """Open pages with generated parameters, and send generated forms."""
    words = st.text(max_size=40) | st.sampled_from(HOSTILE)
    names = st.sampled_from(
        ["q", "what", "after", "n", "notice", "limit", "lease", "capacity", "x"]
    )

    @seed(number)
    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.sampled_from(fuzz.pages), st.dictionaries(names, words, max_size=4), st.booleans(),
           words)  # fmt: skip
    def once(page: str, values: dict[str, str], is_form: bool, part: str) -> None:  # noqa: FBT001
        if fuzz.sent >= target:
            return
        page = page.replace("*", quote(part, safe="", errors="replace"))
        if is_form:
            fuzz.try_page(page.partition("?")[0], values)
        else:
            sign = "&" if "?" in page else "?"
            fuzz.try_page(page + sign + urlencode(values, errors="replace"), None)

    target = fuzz.sent + count
    for _ in range(10):
        once()
        if fuzz.sent >= target:
            break


def main() -> int:
    """Run the plan on the standard input, and print figures."""
    plan = json.load(sys.stdin)
    INCLUDED.update({role: set(operations) for role, operations in plan["roles"].items()})
    fuzz = Fuzz(plan)
    _, raw, _ = fuzz.send(
        "GET", f"{API}/openapi.json", None, {"Authorization": f"Bearer {fuzz.tokens['admin']}"}
    )
    described = json.loads(raw)
    validate(described)
    schema = schemathesis.openapi.from_dict(described)
    operations = [operation.ok() for operation in schema.get_all_operations()]
    total, number = plan["requests"], plan["seed"]
    each = max(4, min(EACH, total // len(operations) // 2))
    while fuzz.sent < total:
        number += 1
        for operation in operations:
            fuzz_operation(fuzz, operation, each, number)
        fuzz_pages(fuzz, each * len(operations) // 4, number)
        print(f"{fuzz.sent} requests, {len(fuzz.faults)} faults", file=sys.stderr, flush=True)
    statuses = {str(status): count for status, count in sorted(fuzz.statuses.items())}
    print(json.dumps({"requests": fuzz.sent, "operations": len(operations), "roles": fuzz.asked,
                      "statuses": statuses, "faults": len(fuzz.faults)}))  # fmt: skip
    for fault in fuzz.faults[:SHOWN_MAX]:
        print(fault)
    return 1 if fuzz.faults else 0


if __name__ == "__main__":
    sys.exit(main())
