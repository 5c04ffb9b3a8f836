"""The HTTP API: enqueue, read, errors, access and its description (A7)."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from dueline import Dueline, Unique
from dueline.core.job import JobId
from dueline.core.limit_costs import costs_of
from dueline.web import api, dashboard
from dueline.web.http_api.application import OPERATIONS
from dueline.web.security import ROLES, Role
from tests.harness.http_api import Program
from tests.harness.web import Shop

ELSEWHERE = "192.0.2.7"
TOKENS: dict[str, Role] = {f"a-token-of-role-{role}": role for role in ROLES}


@pytest.fixture
def program(shop: Shop) -> Program:
    """Use the API as an admin."""
    return Program(api(shop.app, role="admin"))


@pytest.fixture
def app() -> Iterator[Dueline]:
    """Open an application in memory."""
    made = Dueline("memory://")
    yield made
    made.close()


@pytest.fixture(scope="module")
def checking() -> Iterator[Program]:
    """Use the API of an application with one task."""
    app = Dueline("memory://")

    @app.task(name="shop.send")
    def send(to: str, password: str = "") -> None: ...

    yield Program(api(app, role="admin"))
    app.close()


def test_a_job_is_enqueued_and_read(shop: Shop, program: Program) -> None:
    body = {
        "task": "shop.send", "kwargs": {"to": "ben", "password": "hunter2"}, "after": 60,
        "priority": 3, "tenant": "acme", "tags": ["new"], "expires": 90, "headers": {"a": "b"},
    }  # fmt: skip
    made = program.call("POST", "/jobs", body, status=201)
    assert made["checked"]
    found = program.call("GET", f"/jobs/{made['id']}")
    assert (found["state"], found["queue"], found["priority"]) == ("scheduled", "mail", 3)
    assert found["arguments"] == {"to": "ben", "password": "[redacted]"}
    assert found["due"].endswith("Z")
    foreign = program.call("POST", "/jobs", {"task": "other.charge", "args": [1]}, status=201)
    assert not foreign["checked"]
    done = program.call("GET", f"/jobs/{shop.done}")
    assert done["state"] == "done"
    assert done["result"]["token"] == "[redacted]"  # noqa: S105
    assert (done["attempts"][0]["fence"], done["attempts"][0]["outcome"]) == (1, "done")


def test_jobs_are_listed_a_page_at_a_time(program: Program) -> None:
    for number in range(5):
        call = {"task": "shop.send", "args": [str(number)], "after": 100 + number, "tags": ["page"]}
        program.call("POST", "/jobs", call, status=201)
    seen: list[str] = []
    path = "/jobs?filter=tag:page&limit=2"
    cursor = ""
    while cursor is not None:
        page = program.call("GET", path + (f"&cursor={cursor}" if cursor else ""))
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
    assert len(seen) == len(set(seen)) == 5


def test_many_jobs_are_enqueued_with_one_request(program: Program) -> None:
    jobs: list[Any] = [{"task": "shop.send", "args": [name]} for name in "abc"]
    made = program.call("POST", "/jobs/bulk", {"jobs": jobs}, status=201)
    assert len({one["id"] for one in made}) == 3
    jobs[1]["args"] = [1, 2, 3, 4]
    refused = program.call("POST", "/jobs/bulk", {"jobs": jobs}, status=422)
    assert "calls[1]" in refused["detail"]


def test_a_repeat_with_the_same_key_returns_the_same_jobs(shop: Shop, program: Program) -> None:
    body = {"task": "shop.send", "args": ["ann"]}
    first = program.call("POST", "/jobs", body, status=201, idempotency_key="k-1")
    again = program.call("POST", "/jobs", body, status=201, idempotency_key="k-1")
    assert (first["id"], first["repeated"]) == (again["id"], not again["repeated"])
    shop.app.run_worker(["mail"], burst=True, monitor=False)
    over = program.call("POST", "/jobs", body, status=201, idempotency_key="k-1")
    assert over["id"] == first["id"]
    other = {"task": "shop.send", "args": ["ben"]}
    reused = program.call("POST", "/jobs", other, status=422, idempotency_key="k-1")
    assert reused["type"] == "urn:dueline:problem:key-reused"
    many = {"jobs": [body, other]}
    some = program.call("POST", "/jobs/bulk", many, status=201, idempotency_key="k-2")
    same = program.call("POST", "/jobs/bulk", many, status=201, idempotency_key="k-2")
    assert [one["id"] for one in some] == [one["id"] for one in same]


def test_a_key_of_an_invalid_request_may_be_used_again(program: Program) -> None:
    wrong = {"task": "shop.send", "args": [1, 2, 3]}
    program.call("POST", "/jobs", wrong, status=422, idempotency_key="k")
    right = {"task": "shop.send", "args": ["ann"]}
    program.call("POST", "/jobs", right, status=201, idempotency_key="k")
    for key in ("", "ü", "x" * 256):
        sent = program.send("POST", "/jobs", json=right, headers={b"idempotency-key": key.encode()})
        assert sent.status_code == 422, key


def test_a_unique_key_and_an_idempotency_key_exclude_each_other(app: Dueline) -> None:
    @app.task(name="one", unique="one")
    def one() -> None: ...

    program = Program(api(app, role="producer"))
    program.call("POST", "/jobs", {"task": "one"}, status=422, idempotency_key="k")
    program.call("POST", "/jobs", {"task": "one"}, status=201)
    known = app.find("one")
    assert known is not None
    refused = program.call("POST", "/jobs", {"task": "one"}, status=409)
    assert (refused["type"], refused["job_id"]) == ("urn:dueline:problem:duplicate", known.id)
    key = {"key": "{x}", "mode": "existing", "within": 60}
    other = {"task": "two", "unique": key}
    first = program.call("POST", "/jobs", other, status=201)
    assert program.call("POST", "/jobs", other, status=201)["id"] == first["id"]
    unchecked = app.unchecked("two").using(unique=Unique("{{x}}", mode="existing"))
    assert unchecked.enqueue().id == first["id"]


def test_jobs_of_an_order_key_wait_for_the_first(app: Dueline) -> None:
    """Braces name no arguments (T16)."""
    program = Program(api(app, role="admin"))
    body = {"task": "shop.send", "args": ["ann"], "order_key": {"key": "{a}", "dead": "skip"}}
    first, second = (program.call("POST", "/jobs", body, status=201)["id"] for _ in range(2))
    details = program.call("GET", f"/jobs/{second}")
    assert (details["order_key"], details["order_first"]) == ("{a}", first)
    wrong = body | {"order_key": {"key": "a", "dead": "later"}}
    program.call("POST", "/jobs", wrong, status=422)


def test_a_job_starts_after_others(app: Dueline) -> None:
    """Their ids, and what their failure does (W14)."""
    program = Program(api(app, role="producer"))
    first = program.call("POST", "/jobs", {"task": "one", "after": 60}, status=201)["id"]
    awaited = {"jobs": [first], "failures": "cancel"}
    job = program.call("POST", "/jobs", {"task": "two", "depends_on": awaited}, status=201)["id"]
    assert first in str(app.job(job).explain())
    for ids in (["0" * 32], ["x"], []):
        refused = {"task": "two", "depends_on": {"jobs": ids}}
        sent = program.send("POST", "/jobs", json=refused)
        assert sent.status_code in (404, 422), ids


def test_a_job_takes_units_of_limits(app: Dueline) -> None:
    """A list takes one unit of each (F12)."""
    program = Program(api(app, role="admin"))
    app.semaphore("gpu", capacity=4)
    for limits, units in (({"gpu": 3, "host:a": 1}, 3), (["gpu", "host:a"], 1)):
        body = {"task": "train", "limits": limits}
        job = program.call("POST", "/jobs", body, status=201)["id"]
        (row,) = app.store.find([JobId(bytes.fromhex(job))])
        assert row is not None
        assert costs_of(row).get("gpu", 1) == units
        assert program.call("GET", f"/jobs/{job}")["limits"] == ["gpu", "host:a"]
    for refused, word in (({"gpu": 5}, "gpu"), ({"gpu": 0}, "gpu"), ({"gpu": "x"}, "limits")):
        sent = program.send("POST", "/jobs", json={"task": "train", "limits": refused})
        assert sent.status_code == 422
        assert word in sent.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"task": "shop.send", "args": [1, 2, 3]}, 422, "shop.send"),
        ({"task": "shop.send", "arg": [1]}, 422, "arg"),
        ({"task": 5}, 422, "$.task"),
        ({}, 422, "task"),
        ([], 422, "object"),
        ({"task": "shop.send", "kwargs": {"self": 1}}, 422, "to"),
        ({"task": "shop.send", "args": ["a"], "due": "2027-01-01T00:00:00"}, 422, "due"),
        ({"task": "shop.send", "args": ["a"], "due": "9999-12-31T23:59:59Z"}, 422, "ten years"),
        ({"task": "shop.send", "args": ["a"], "after": -1}, 422, "after"),
        ({"task": "shop.send", "args": ["a"], "priority": 2**40}, 422, "32-bit"),
        ({"task": "shop.send", "args": ["a"], "queue": "A b"}, 422, "name"),
        ({"task": "shop.send", "args": ["a"], "expires": 0}, 422, "expire"),
        pytest.param({"task": "x", "args": ["a" * 300_000]}, 422, "262144", id="large"),
        pytest.param({"task": "x", "args": ["a" * 600_000]}, 413, "bytes", id="too large"),
        (b"{", 400, ""),
        (b"\xff", 400, ""),
        pytest.param(b'{"task": "x", "args": ' + b"[" * 9_000, 400, "", id="deep"),
        (b'{"task": "x", "args": [NaN]}', 400, ""),
    ],
)
def test_bad_bodies_are_refused(
    checking: Program,
    body: Any,  # noqa: ANN401
    status: int,
    word: str,
) -> None:
    headers = {"content-type": "application/json"}
    raw: dict[str, Any] = {"content": body, "headers": headers}
    answer = checking.send("POST", "/jobs", **(raw if isinstance(body, bytes) else {"json": body}))
    assert answer.status_code == status, answer.text[:300]
    problem = answer.json()
    assert problem["status"] == status
    assert word in problem["detail"]
    assert problem["hint"]


def test_other_requests_that_make_no_sense_are_problems(checking: Program) -> None:
    assert checking.call("GET", "/nothing", status=404)["type"].endswith(":not-found")
    checking.call("GET", f"/jobs/{'0' * 32}", status=404)
    checking.call("GET", "/jobs/x", status=422)
    checking.call("GET", "/jobs?limit=0", status=422)
    checking.call("GET", "/jobs?limit=x", status=422)
    checking.call("GET", "/jobs?other=1", status=422)
    checking.call("GET", "/jobs?cursor=x", status=422)
    checking.call("GET", "/jobs?filter=state:x", status=422)
    checking.call("POST", "/jobs/%00/x", status=400)
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        refused = checking.ask(method, "/jobs")
        assert refused.status_code == 405
        assert "POST" in refused.headers["allow"]
    assert checking.ask("POST", "/openapi.json").status_code == 405
    plain = checking.send("POST", "/jobs", content=b"{}", headers={"content-type": "text/plain"})
    assert plain.status_code == 415


@pytest.mark.slow
@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.function.__name__)
def test_only_some_roles_may_call_an_operation(op: Any) -> None:  # noqa: ANN401
    app = Dueline("memory://")
    page = dashboard(app, tokens=TOKENS)
    program = Program(page, address=ELSEWHERE, base="https://jobs.example")
    path = "/api/v1" + re.sub(r"\{\w+\}", "x", op.path)
    for program.token in ("", "a-token-that-is-wrong"):
        refused = program.call(op.method, path, {} if op.body else None, status=401)
        assert refused["hint"]
    for token, role in TOKENS.items():
        program.token = token
        status = program.ask(op.method, path, {} if op.body else None).status_code
        may = any(one in ROLES[role] for one in op.roles)
        assert (status == 403) == (not may), (role, status)
        assert status < 500
    app.close()


def test_programs_do_not_see_the_pages(app: Dueline) -> None:
    program = Program(dashboard(app, tokens=TOKENS), address=ELSEWHERE, base="https://a.example")
    for role in ("producer", "worker"):
        program.token = f"a-token-of-role-{role}"
        assert program.ask("GET", "/jobs").status_code == 403
        assert program.ask("GET", "/api/v1/openapi.json").status_code == 200
        assert program.ask("GET", "/login").status_code == 200


def test_other_sites_and_machines_have_no_access(app: Dueline) -> None:
    page = dashboard(app, role="operator")
    body = {"task": "x"}
    local = Program(page)
    local.call("POST", "/api/v1/jobs", body, status=201)
    local.call("POST", "/api/v1/jobs", body, status=201, origin=local.base)
    local.call("POST", "/api/v1/jobs", body, status=403, origin="https://evil.example")
    local.call("POST", "/api/v1/jobs", body, status=403, origin="null")
    local.call("POST", "/api/v1/jobs", body, status=403, sec_fetch_site="cross-site")
    Program(page, address=ELSEWHERE).call("POST", "/api/v1/jobs", body, status=403)
    rebound = Program(page, base="http://evil.example")
    rebound.call("POST", "/api/v1/jobs", body, status=421)
    answer = local.ask("GET", "/api/v1/jobs")
    assert "set-cookie" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_session_of_the_dashboard_may_read_but_not_be_forged(app: Dueline) -> None:
    browser = Program(dashboard(app, tokens=TOKENS), base="https://a.example")
    browser.post("/login", {"token": "a-token-of-role-operator"})
    browser.call("GET", "/api/v1/jobs")
    body = {"task": "x"}
    browser.call("POST", "/api/v1/jobs", body, status=403, origin="https://evil.example")
    browser.call("POST", "/api/v1/jobs", body, status=201, origin=browser.base)


def test_the_api_is_mounted_alone(app: Dueline) -> None:
    site = Starlette(routes=[Mount("/queue/v1", api(app, role="admin"))])
    program = Program(site)
    program.call("POST", "/queue/v1/jobs", {"task": "x"}, status=201)
    described = program.call("GET", "/queue/v1/openapi.json")
    assert described["servers"] == [{"url": "/queue/v1"}]
    program.call("GET", "/queue/v1/login", status=404)
    for path in ("/", "/nothing", "/jobs/%0a"):
        Program(dashboard(app)).call("GET", f"/api/v1{path}", status=404)


def test_the_description_names_every_operation_and_schema(app: Dueline) -> None:
    described = Program(api(app)).call("GET", "/openapi.json")
    assert described["openapi"] == "3.1.0"
    found = {(path, method) for path, ops in described["paths"].items() for method in ops}
    assert found == {(op.path, op.method.lower()) for op in OPERATIONS}
    text = str(described)
    schemas = described["components"]["schemas"]
    used = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert used == set(schemas)
    for ops in described["paths"].values():
        for one in ops.values():
            assert one["summary"]
            assert "Needs the role" in one["description"]
