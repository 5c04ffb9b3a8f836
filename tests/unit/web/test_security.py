"""Who sees and changes what: hosts, tokens, roles, forged and oversized requests (V8)."""

from collections.abc import Iterator

import pytest
from starlette.requests import HTTPConnection

from dueline import Dueline
from dueline.core.errors import ConfigError
from dueline.web import Identity, dashboard
from dueline.web.security import BODY_BYTES_MAX, SESSION_S, Access, Role
from tests.harness.web import Visitor

TOKEN, READING = "a-token-of-an-operator", "a-token-of-a-reader"
TOKENS: dict[str, Role] = {TOKEN: "operator", READING: "reader"}
ELSEWHERE = "192.0.2.7"


@pytest.fixture(scope="module")
def app() -> Iterator[Dueline]:
    made = Dueline("memory://")
    made.unchecked("shop.send", queue="mail").enqueue()
    yield made
    made.close()


def test_a_dashboard_without_login_only_answers_this_machine(app: Dueline) -> None:
    page = dashboard(app)
    assert Visitor(page).get("/").status_code == 200
    assert Visitor(page, base="http://localhost:8321").get("/").status_code == 200
    assert Visitor(page, address=ELSEWHERE).get("/").status_code == 403
    assert Visitor(page, address="testclient").get("/").status_code == 403
    for name in ("evil.example", "127.0.0.1.evil.example", "0.0.0.0"):  # noqa: S104
        assert Visitor(page, base=f"http://{name}").get("/").status_code == 421
    forwarded = Visitor(page, address=ELSEWHERE).get("/", **{"x-forwarded-for": "127.0.0.1"})
    assert forwarded.status_code == 403


def test_readers_see_no_button_and_change_nothing(app: Dueline) -> None:
    reader = Visitor(dashboard(app))
    assert ">Pause</button>" not in reader.text("/queues")
    assert reader.post("/queues/mail/pause").status_code == 403
    assert reader.get("/jobs/change?q=&what=cancel").status_code == 403
    operator = Visitor(dashboard(app, role="operator"))
    assert ">Pause</button>" in operator.text("/queues")
    assert operator.post("/queues/mail/settings", {"lease": "9s"}).status_code == 403
    assert not app.engine.catalog.settings("mail").is_paused


def test_every_response_has_the_headers(app: Dueline) -> None:
    visitor = Visitor(dashboard(app))
    for path in ("/", "/nothing", "/static/dashboard.js", "/jobs?q=x:y"):
        headers = visitor.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert visitor.get("/").headers["cache-control"] == "no-store"
    cookie = Visitor(dashboard(app)).get("/").headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


@pytest.mark.parametrize(
    ("headers", "form"),
    [
        ({"origin": "https://evil.example"}, {}),
        ({"origin": "null"}, {}),
        ({"origin": ""}, {}),
        ({"origin": "", "referer": "http://evil.example/x"}, {}),
        ({"sec-fetch-site": "cross-site"}, {}),
        ({}, {"csrf": "0" * 32}),
        ({}, {"csrf": ""}),
    ],
)
def test_forged_forms_change_nothing(
    app: Dueline, headers: dict[str, str], form: dict[str, str]
) -> None:
    operator = Visitor(dashboard(app, role="operator"))
    operator.text("/queues")
    assert operator.post("/queues/mail/pause", form, headers=headers).status_code == 403
    assert not app.engine.catalog.settings("mail").is_paused


def test_tokens_open_sessions_with_their_role(app: Dueline) -> None:
    page = dashboard(app, tokens=TOKENS)
    visitor = Visitor(page, address=ELSEWHERE, base="https://jobs.example")
    assert visitor.get("/jobs").headers["location"] == "/login"
    assert visitor.get("/series.json", authorization="Bearer wrong").status_code == 401
    assert visitor.post("/queues/mail/pause").status_code == 401
    wrong = visitor.post("/login", {"token": "wrong"})
    assert wrong.status_code == 403
    assert "not valid" in wrong.text
    visitor.post("/login", {"token": TOKEN})
    assert "token 1 (operator)" in visitor.text("/")
    assert TOKEN not in str(dict(visitor.cookies))
    assert visitor.post("/queues/mail/pause").status_code == 303
    visitor.post("/queues/mail/resume")
    visitor.post("/logout")
    assert visitor.get("/").status_code == 303


def test_a_bearer_needs_no_form_of_a_page(app: Dueline) -> None:
    page = dashboard(app, tokens=TOKENS)
    program = Visitor(page, address=ELSEWHERE, base="https://jobs.example")
    form = {"headers": {"authorization": f"Bearer {READING}"}, "data": {"x": ""}}
    assert program.send("POST", "/queues/mail/pause", **form).status_code == 403
    form["headers"] = {"authorization": f"Bearer {TOKEN}"}
    assert program.send("POST", "/queues/mail/pause", **form).status_code == 303
    program.send("POST", "/queues/mail/resume", **form)


def test_sessions_end_and_cannot_be_made_up() -> None:
    access = Access(tokens=TOKENS)
    session = access.session_of(TOKEN, 1000)
    assert access.by_session(session, 1001) == Identity("token 1 (operator)", "operator")
    assert access.by_session(session, 1000 + SESSION_S) is None
    later = session.replace(session.partition(".")[0], str(10**11))
    assert access.by_session(later, 1001) is None
    assert access.by_session(f"{10**11}.", 1001) is None
    assert Access(tokens={"another-token-of-it": "reader"}).by_session(session, 1001) is None
    with pytest.raises(ConfigError, match="less than 16"):
        Access(tokens={"short": "reader"})
    with pytest.raises(ConfigError, match="not a role"):
        Access(role="root")  # type: ignore[arg-type]


def test_the_host_application_says_who_it_is(app: Dueline) -> None:
    def login(connection: HTTPConnection) -> Identity | None:
        name = connection.headers.get("x-user")
        return None if name is None else Identity(name, "operator")

    page = dashboard(app, authorize=login, hosts=["jobs.example"])
    visitor = Visitor(page, address=ELSEWHERE, base="https://jobs.example")
    assert visitor.get("/").status_code == 401
    assert "ann · operator" in visitor.get("/", **{"x-user": "ann"}).text
    foreign = Visitor(page, address=ELSEWHERE, base="https://evil.example")
    assert foreign.get("/", **{"x-user": "ann"}).status_code == 421

    async def slow_login(connection: HTTPConnection) -> Identity | None:
        return login(connection)

    page = dashboard(app, authorize=slow_login)
    assert Visitor(page, base="https://jobs.example").get("/").status_code == 401
    assert Visitor(page, base="https://a.example").get("/", **{"x-user": "b"}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../security.py",
        "/static/%2e%2e/security.py",
        "/static/..%2fsecurity.py",
        "/static//etc/passwd",
        "/static/vendor/../../security.py",
        "/static/%00",
    ],
)
def test_files_beside_the_static_ones_are_not_served(app: Dueline, path: str) -> None:
    answer = Visitor(dashboard(app)).get(path)
    assert answer.status_code in (400, 404)
    assert "import" not in answer.text


def test_bodies_that_are_no_small_form_are_refused(app: Dueline) -> None:
    operator = Visitor(dashboard(app, role="operator"))
    large = {"q": "x" * (BODY_BYTES_MAX + 1)}
    assert operator.post("/jobs/change", large).status_code == 413
    assert operator.send("POST", "/jobs/change", json={}).status_code == 415
    many = {f"f{n}": "1" for n in range(60)}
    assert operator.post("/jobs/change", many).status_code == 400
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert operator.send(method, "/jobs").status_code == 405
    assert operator.post("/schedules/x%00/pause").status_code == 400
    assert operator.post("/jobs/change", {"q": "a\0"}).status_code == 400
    long = operator.get(f"/jobs?q={'x' * 600}")
    assert long.status_code == 400
