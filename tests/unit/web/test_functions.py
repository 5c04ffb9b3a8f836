"""Pages of durable functions, on memory and SQLite (V8, W10, W13, W15)."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dueline.web import dashboard
from tests.harness.addresses import address
from tests.harness.durable_shop import SECRET, DurableShop
from tests.harness.programs import WAIT_S
from tests.harness.web import Visitor

NO_JOB = "0" * 32


@pytest.fixture(params=["memory", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DurableShop]:
    """Open an application on each kind of store."""
    with address(request.param, tmp_path) as url:
        made = DurableShop(url)
        yield made
        made.app.close()


@pytest.fixture
def visitor(shop: DurableShop) -> Visitor:
    """Open the dashboard as an operator."""
    return Visitor(dashboard(shop.app, role="operator"))


def row_of(page: str, position: str) -> str:
    """Return the row of a call in the list of calls."""
    return page.partition(f'/calls/{position}">{position}</a>')[2].partition("</tr>")[0]


def test_the_list_says_what_functions_wait_for(shop: DurableShop, visitor: Visitor) -> None:
    assert "No durable function has begun." in visitor.text("/functions")
    jobs = {
        "waiting": shop.begun(shop.approve, "7"),
        "sleeping": shop.begun(shop.nap, long=True),
        "stopped": shop.stopped(),
        "dead": shop.dead(),
        "done": shop.begun(shop.pay),
    }
    page = visitor.text("/functions")
    for state, job in jobs.items():
        row = page.partition(f'title="{job.id}"')[2].partition("</tr>")[0]
        assert f"s-{state}" in row, state
    assert "signal approved, ends <time" in page
    assert f'title="{jobs["stopped"].id}"' in visitor.text("/functions?state=stopped")
    found = visitor.text("/functions?name=na")
    assert jobs["sleeping"].id in found
    assert jobs["waiting"].id not in found
    assert "No functions match." in visitor.text("/functions?state=cancelled")


def test_a_function_shows_its_calls_without_secrets(shop: DurableShop, visitor: Visitor) -> None:
    job = shop.begun(shop.approve, "7", password=SECRET)
    page = visitor.text(f"/functions/{job.id}")
    assert SECRET not in page
    assert "&#34;booked 7&#34;" in row_of(page, "1")
    assert "[redacted]" in row_of(page, "2")
    assert "<script>alert" not in page
    assert not any(sign in page for sign in "\u202e\x1b")
    assert re.search(r'<td class="n" data-label="Attempts">1</td>', row_of(page, "1"))
    assert "gather" in row_of(page, "3")
    assert page.count('<tr class="below">') == 9  # eight jobs, and a link to the others
    assert "4 more jobs" in page
    assert "no label &lt;script&gt;" in page
    assert "s-waiting" in row_of(page, "5")
    assert "It waits for the signal approved since" in page
    assert "dueline flows signal" in page
    assert "an editor" in page
    part = visitor.get(f"/functions/{job.id}", **{"hx-request": "true"})
    assert "<!doctype" not in part.text
    assert "s-waiting" in part.text
    assert f'href="/functions/{job.id}">Calls' in visitor.text(f"/jobs/{job.id}")


def test_a_call_is_shown_whole(shop: DurableShop, visitor: Visitor) -> None:
    nap, approve, pay = shop.begun(shop.nap, long=True), shop.begun(shop.approve, "7"), shop.dead()
    assert "Show the value" in row_of(visitor.text(f"/functions/{nap.id}"), "1")
    assert "large" * 4_000 in visitor.text(f"/functions/{nap.id}/calls/1")
    jobs = visitor.text(f"/functions/{approve.id}/calls/3")
    assert jobs.count('<td class="n" data-label="No.">') == 12
    assert "s-dead" in jobs
    assert "No jobs here." in visitor.text(f"/functions/{approve.id}/calls/3?after=50")
    assert "[redacted]" in visitor.text(f"/functions/{approve.id}/calls/2")
    failed = visitor.text(f"/functions/{pay.id}/calls/2")
    assert "Traceback" in failed
    assert "card declined &lt;script&gt;" in failed
    assert visitor.get(f"/functions/{pay.id}/calls/9").status_code == 404
    assert visitor.get(f"/functions/{pay.id}/calls/x").status_code == 404


def test_a_called_function_and_its_caller_link_each_other(
    shop: DurableShop, visitor: Visitor
) -> None:
    parent = shop.begun(shop.nap, long=False)
    page = visitor.text(f"/functions/{parent.id}")
    assert "It waits for the end of the job of shop.child" in page
    child = re.search(r'href="/functions/(\w+)"', row_of(page, "2"))
    assert child
    assert "s-running" in row_of(page, "2")
    called = visitor.text(f"/functions/{child[1]}")
    assert f'<dt>Called by</dt><dd><a class="id" href="/functions/{parent.id}"' in called
    send(visitor, child[1], "signal", name="child", value='"grown"')
    shop.work()
    page = visitor.text(f"/functions/{parent.id}")
    assert "&#34;grown&#34;" in row_of(page, "3")
    assert parent.result(timeout=WAIT_S) == "grown"


def test_values_of_a_codec_of_the_application_stay_hidden(
    shop: DurableShop, visitor: Visitor
) -> None:
    job = shop.begun(shop.sealed)
    for path in (f"/functions/{job.id}", f"/functions/{job.id}/calls/1"):
        page = visitor.text(path)
        assert "encrypted or in another codec of the application" in page
        assert SECRET not in page
        assert SECRET[::-1] not in page
    assert send(visitor, job.id, "signal", name="go", value='"x"').status_code == 303
    shop.work()
    assert job.result(timeout=WAIT_S) == "x"


def test_calls_are_shown_in_pages(shop: DurableShop, visitor: Visitor) -> None:
    job = shop.begun(shop.many, 250)
    last = visitor.text(f"/functions/{job.id}")
    assert "152 to 251 of 251" in last
    assert last.count('<td data-label="Call"') == 100
    assert f'href="/functions/{job.id}?to=151">Earlier calls' in last
    before = visitor.text(f"/functions/{job.id}?to=151")
    assert "52 to 151 of 251" in before
    assert f'href="/functions/{job.id}?to=251">Later calls' in before
    first = visitor.text(f"/functions/{job.id}?to=51")
    assert "1 to 51 of 251" in first
    assert "Earlier calls" not in first


def send(visitor: Visitor, job: str, what: str, **form: str) -> httpx.Response:
    """Send the form of a change."""
    return visitor.post(f"/functions/{job}/change", {"what": what, **form})


def test_a_signal_is_sent_once(shop: DurableShop, visitor: Visitor) -> None:
    job = shop.begun(shop.approve, "7")
    asked = visitor.text(f"/functions/{job.id}/change?what=signal")
    assert 'name="name" value="approved"' in asked
    own = re.search(r'name="id" value="(\w+)"', asked)
    assert own
    for _ in range(2):
        answer = send(visitor, job.id, "signal", name="approved", value='{"by": "ann"}', id=own[1])
        assert answer.headers["location"].endswith(f"/functions/{job.id}?notice=signalled&n=1")
    assert "<dd>approved</dd>" in visitor.text(f"/functions/{job.id}")
    shop.work()
    assert job.result(timeout=WAIT_S)["answer"] == {"by": "ann"}
    assert [(one.what, one.target) for one in shop.app.admin.actions()] == [
        ("signal approved", job.id)
    ] * 2
    page = visitor.text(f"/functions/{job.id}")
    assert "/change?what=" not in page
    assert "s-done" in page


def test_a_function_is_reset_forked_retried_and_cancelled(
    shop: DurableShop, visitor: Visitor
) -> None:
    job = shop.begun(shop.approve, "7")
    assert "0 to 5" in visitor.text(f"/functions/{job.id}/change?what=reset")
    forked = send(visitor, job.id, "fork", to="1").headers["location"]
    fork = forked.partition("/functions/")[2].partition("?")[0]
    assert fork != job.id
    assert send(visitor, job.id, "reset", to="0").status_code == 303
    shop.work()
    assert shop.made == ["7", "7"]
    assert "s-waiting" in visitor.text(f"/functions/{fork}")
    assert send(visitor, fork, "cancel").headers["location"].endswith("asked-function&n=1")
    shop.work()
    assert shop.made == ["7", "7", "undo booked 7"]
    page = visitor.text(f"/functions/{fork}")
    assert 'tabindex="-1" class="below"' in page  # its compensation
    dead = shop.dead()
    assert send(visitor, dead.id, "retry").status_code == 303
    shop.work()
    assert dead.result(timeout=WAIT_S) == "charged"
    what = [one.what for one in reversed(shop.app.admin.actions())]
    assert what == ["fork function after call 1", "reset function after call 0", "cancel", "retry"]


def test_refusals_show_why(shop: DurableShop, visitor: Visitor) -> None:
    waiting, done, stopped = shop.begun(shop.approve, "7"), shop.begun(shop.pay), shop.stopped()
    bad = send(visitor, waiting.id, "signal", name="approved", value="{yes}")
    assert bad.status_code == 400
    assert "The value is not JSON" in bad.text
    assert "{yes}" in bad.text
    for form, text in [
        ({"what": "reset", "to": "9"}, "The log has 5 calls; there is no call 9."),
        ({"what": "fork", "to": "x"}, "&#39;x&#39; is not the number of a call."),
        ({"what": "signal", "name": "a/b", "value": "1"}, "is not a valid name of a signal"),
        ({"what": "explode"}, "is nothing that is done with functions."),
    ]:
        answer = visitor.post(f"/functions/{waiting.id}/change", form)
        assert (answer.status_code, text in answer.text) == (400, True), answer.text
    for what, value, status in [("signal", "1", 404), ("reset", "", 404), ("cancel", "", 409)]:
        answer = send(visitor, done.id, what, name="go", value=value)
        assert answer.status_code == status, (what, answer.text)
        assert "alert" not in answer.text or "ended" in answer.text
    assert "It may have ended" in send(visitor, done.id, "signal", name="go", value="1").text
    page = visitor.text(f"/functions/{stopped.id}")
    assert "It is stopped since" in page
    assert "call 1 was one, the code now calls two" in page
    assert "or reset it" in page
    assert send(visitor, stopped.id, "reset", to="0").status_code == 303
    shop.work()
    assert stopped.result(timeout=WAIT_S) == "x"
    assert visitor.get(f"/functions/{NO_JOB}/change?what=reset").status_code == 404


def test_readers_see_and_change_nothing(shop: DurableShop) -> None:
    job = shop.begun(shop.approve, "7")
    reader = Visitor(dashboard(shop.app, role="reader"))
    page = reader.text(f"/functions/{job.id}")
    assert "/change?what=" not in page
    assert "/change?what=" not in reader.text(f"/functions/{job.id}/calls/1")
    assert reader.get(f"/functions/{job.id}/change?what=signal").status_code == 403
    for what in ("signal", "cancel", "retry", "reset", "fork"):
        assert send(reader, job.id, what, name="approved", value="1").status_code == 403
    assert send(reader, job.id, "signal", csrf="0" * 32).status_code == 403
    assert shop.app.admin.actions() == []


def test_the_page_of_another_job_is_that_of_the_job(shop: DurableShop, visitor: Visitor) -> None:
    job = shop.app.unchecked("plain").enqueue()
    answer = visitor.get(f"/functions/{job.id}")
    assert answer.headers["location"] == f"/jobs/{job.id}"
    assert visitor.get(f"/jobs/{NO_JOB}").status_code == 404
