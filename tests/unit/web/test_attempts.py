"""Sessions that end, and wrong tokens that take longer and are logged."""

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.web import dashboard, guesses
from dueline.web.guesses import FREE, WAITING_MAX
from dueline.web.security import SESSION_COOKIE, Role
from tests.harness.web import Visitor

TOKEN, PATH = "a-token-of-an-operator", "/api/v1/queues"
TOKENS: dict[str, Role] = {TOKEN: "operator"}
BASE, ELSEWHERE, ANOTHER = "https://jobs.example", "192.0.2.7", "192.0.2.8"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    made = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield made
    made.close()


def test_a_log_out_ends_the_session_in_every_process_and_after_a_restart(app: Dueline) -> None:
    first = Visitor(dashboard(app, tokens=TOKENS), address=ELSEWHERE, base=BASE)
    first.post("/login", {"token": TOKEN})
    other = Visitor(dashboard(app, tokens=TOKENS), address=ELSEWHERE, base=BASE)
    other.post("/login", {"token": TOKEN})
    cookie = f"{SESSION_COOKIE}={first.cookies[SESSION_COOKIE]}"
    assert first.get("/").status_code == 200
    first.post("/logout")
    again = Dueline(app.url)
    for page in (dashboard(app, tokens=TOKENS), dashboard(again, tokens=TOKENS)):
        thief = Visitor(page, address=ANOTHER, base=BASE)
        assert thief.get("/", cookie=cookie).headers["location"] == "/login"
        assert thief.get(PATH, cookie=cookie).status_code == 401
    again.close()
    assert other.get("/").status_code == 200, "another session of the same token"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_of_a_token_has_no_case(app: Dueline, scheme: str) -> None:
    program = Visitor(dashboard(app, tokens=TOKENS), address=ELSEWHERE, base=BASE)
    assert program.get(PATH, authorization=f"{scheme} {TOKEN}").status_code == 200
    assert program.get("/queues", authorization=f"{scheme} {TOKEN}").status_code == 200
    wrong = program.get("/queues", authorization=f"{scheme} wrong")
    assert wrong.status_code == 401


def test_wrong_tokens_take_turns_also_in_parallel(
    app: Dueline, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guesses, "EVERY_S", 0.2)
    page = dashboard(app, tokens=TOKENS)
    answers: list[int] = []

    def guess(number: int) -> None:
        visitor = Visitor(page, address=ELSEWHERE, base=BASE)
        answer = visitor.get(PATH, authorization=f"Bearer wrong-{number}")
        answers.append(answer.status_code)

    known = Visitor(page, address=ELSEWHERE, base=BASE)
    assert known.get(PATH, authorization=f"Bearer {TOKEN}").status_code == 200
    threads = [threading.Thread(target=guess, args=(number,)) for number in range(40)]
    began_s = time.monotonic()
    with caplog.at_level(logging.WARNING, "dueline.web"):
        for thread in threads:
            thread.start()
        # Neither a token that was right here before nor another address has to wait.
        assert known.get(PATH, authorization=f"Bearer {TOKEN}").status_code == 200
        user = Visitor(page, address=ANOTHER, base=BASE)
        assert user.get(PATH, authorization=f"Bearer {TOKEN}").status_code == 200
        for thread in threads:
            thread.join()
    took_s = time.monotonic() - began_s
    assert set(answers) <= {401, 429}
    assert FREE <= answers.count(401) <= FREE + WAITING_MAX + 1 + took_s / guesses.EVERY_S
    assert ELSEWHERE in caplog.text
    assert "wrong" in caplog.text
    assert "wrong-" not in caplog.text
    assert ANOTHER not in caplog.text


def test_failed_log_ins_count_as_wrong_tokens(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guesses, "WAITING_MAX", -1)
    page = dashboard(app, tokens=TOKENS)
    visitor = Visitor(page, address=ELSEWHERE, base=BASE)
    answers = [visitor.post("/login", {"token": f"no-{n}"}).status_code for n in range(FREE + 2)]
    assert answers == [403] * FREE + [429] * 2
    assert visitor.post("/login", {"token": TOKEN}).status_code == 429
    user = Visitor(page, address=ANOTHER, base=BASE)
    assert user.post("/login", {"token": TOKEN}).status_code == 303
