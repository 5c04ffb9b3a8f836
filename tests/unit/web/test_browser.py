"""The dashboard in a real browser: Chromium, which is skipped where it is absent (V8)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline.core.errors import NotFound
from dueline.streams.groups import register
from dueline.web import dashboard
from tests.harness.addresses import address as store_address
from tests.harness.durable_shop import DurableShop
from tests.harness.servers import absent
from tests.harness.web import Shop, serving

CHROMIUM = Path("/usr/bin/chromium")
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
PATHS = ("/", "/jobs", "/jobs?q=state:dead", "/dead", "/queues", "/queues/mail", "/workers",
         "/tasks", "/schedules", "/limits", "/workflows", "/functions", "/batches", "/streams",
         "/streams/clicks", "/audit")  # fmt: skip

pytestmark = [pytest.mark.long, pytest.mark.no_cover, pytest.mark.xdist_group("browser")]


class Screen:
    """A page of the browser, and what it printed as an error."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:  # noqa: ANN401
        self.page = browser.new_context(
            base_url=address, **{"viewport": DESK, **options}
        ).new_page()
        self.page.set_default_timeout(60_000)  # milliseconds; other tests run beside it
        self.errors: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _said(self, message: Any) -> None:  # noqa: ANN401
        if message.type == "error":
            self.errors.append(message.text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        absent("chromium", f"there is no {CHROMIUM}: apt-get install chromium")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (slow to load)

    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    made = Shop("memory://")
    yield made
    made.app.close()


@pytest.fixture(scope="module")
def address(shop: Shop) -> Iterator[str]:
    with serving(dashboard(shop.app, role="operator")) as url:
        yield url


@pytest.fixture(scope="module")
def desk(browser: Any, address: str) -> Screen:  # noqa: ANN401
    return Screen(browser, address)


@pytest.fixture
def page(desk: Screen) -> Iterator[Any]:
    """Give the page of the desk; in the end no error may be on its console."""
    desk.errors.clear()
    yield desk.page
    assert desk.errors == []
    width = desk.page.evaluate("document.documentElement.scrollWidth")
    assert width <= DESK["width"]


def test_no_page_scrolls_sideways_on_a_phone(browser: Any, address: str, shop: Shop) -> None:  # noqa: ANN401
    phone = Screen(browser, address, viewport=PHONE, color_scheme="dark")
    ids = (shop.dead, shop.scheduled)
    for path in (*PATHS, *(f"/jobs/{one}" for one in ids), f"/workflows/{shop.flow}"):
        phone.page.goto(path)
        width = phone.page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], path
    assert phone.errors == []
    phone.page.click("label.menu")
    phone.page.click("nav >> text=Workers")
    phone.page.wait_for_url("**/workers")


def test_a_filter_is_in_the_address_and_stays_after_a_reload(page: Any, shop: Shop) -> None:  # noqa: ANN401
    page.goto("/jobs")
    page.keyboard.press("/")
    page.keyboard.type("tenant:acme priority>3")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?q=tenant%3Aacme+priority%3E3")
    page.reload()
    assert page.input_value("#filter") == "tenant:acme priority>3"
    assert page.locator("tbody tr").count() == 1
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{shop.scheduled}")
    assert "&lt;script&gt;" not in page.inner_text("pre.code")
    assert "<script>alert(1)</script>" in page.inner_text("pre.code")


def test_the_keyboard_opens_pages_and_help(page: Any) -> None:  # noqa: ANN401
    page.goto("/")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/queues")


def test_pages_are_updated_without_a_reload(page: Any, shop: Shop) -> None:  # noqa: ANN401
    page.goto("/queues")
    page.evaluate("window.isSame = true")
    shop.app.unchecked("shop.new", queue="fresh").enqueue()
    page.wait_for_selector("text=fresh")
    assert page.evaluate("window.isSame")
    page.click("#live-toggle")
    assert page.inner_text("#live-toggle") == "Paused"


def test_charts_are_drawn(page: Any) -> None:  # noqa: ANN401
    page.goto("/")
    page.wait_for_selector("#charts canvas")
    assert page.locator("#charts canvas").count() == 3
    assert page.locator(".timeline g").count() >= 1


def test_a_queue_is_paused_and_resumed(page: Any, shop: Shop) -> None:  # noqa: ANN401
    page.goto("/queues/mail")
    page.click("button:text('Pause')")
    page.wait_for_selector(".notice:has-text('Paused')")
    shop.app.engine.catalog.forget("mail")
    assert shop.app.engine.catalog.settings("mail").is_paused
    page.click("button:text('Resume')")
    page.wait_for_selector(".notice:has-text('Resumed')")


def test_selected_dead_jobs_are_retried_and_deleted(page: Any, shop: Shop) -> None:  # noqa: ANN401
    ids = []
    for _ in range(3):  # one after the other: those of one run may die in any order
        ids.append(shop.send.enqueue("nobody").id)
        shop.app.run_worker(["mail"], burst=True, monitor=False)
    page.goto("/jobs?q=state:dead")
    assert page.locator("tbody tr").first.locator("a.id").get_attribute("title") == ids[-1]
    updates: list[Any] = []
    page.route("**/jobs?*", lambda update: updates.append(update))  # noqa: PLW0108  (is marked)
    while not updates:  # a live update is on its way when the box is ticked, and would untick it
        page.wait_for_timeout(100)
    page.check(f"input[name=job-{ids[0]}]")
    page.evaluate("document.activeElement.blur()")
    with page.expect_response("**/jobs?*"):
        updates.pop().continue_()
    page.wait_for_timeout(4_000)  # none begins then
    assert not updates
    page.unroute_all()
    assert page.is_checked(f"input[name=job-{ids[0]}]")
    page.check(f"input[name=job-{ids[1]}]")
    page.click("button[value=delete]")
    page.click("button:text('Delete')")
    page.wait_for_selector(".notice:has-text('Deleted: 2.')")
    for job_id in ids[:2]:
        with pytest.raises(NotFound):
            _ = shop.app.job(job_id).status
    page.check(f"input[name=job-{ids[2]}]")
    page.click("button[value=retry]")
    page.wait_for_selector(".notice:has-text('Retried: 1.')")
    assert shop.app.job(ids[2]).status == "ready"
    shop.app.job(ids[2]).cancel()


def test_one_dead_job_is_deleted_on_its_page(page: Any, shop: Shop) -> None:  # noqa: ANN401
    job = shop.send.enqueue("nobody")
    shop.app.run_worker(["mail"], burst=True, monitor=False)
    page.goto(f"/jobs/{job.id}")
    assert page.inner_text("pre.code >> nth=-1").startswith("Traceback")
    page.click("button:text('Delete…')")
    page.click("button:text('Delete')")
    page.wait_for_selector(".notice:has-text('Deleted: 1.')")
    with pytest.raises(NotFound):
        _ = job.status


def test_a_done_job_runs_again(page: Any, shop: Shop) -> None:  # noqa: ANN401
    shop.app.queue("again", history="arguments")
    done = shop.send.using(queue="again").enqueue("eve")
    shop.app.run_worker(["again"], burst=True, monitor=False)
    page.goto(f"/jobs/{done.id}")
    assert '"eve"' in page.inner_text("pre.code >> nth=0")
    page.click("button:text('Run again')")
    page.wait_for_selector(".notice:has-text('Enqueued again')")
    assert page.locator(".state.s-ready").count() == 1
    page.goto("/jobs?q=state:done queue:again")
    page.check("tbody input[type=checkbox]")
    page.click("button[value='run again']")
    page.wait_for_selector(".notice:has-text('Enqueued again as new jobs: 1.')")
    assert shop.app.admin.count("queue:again state:ready").jobs == 2


def test_periods_of_the_charts_are_chosen(page: Any) -> None:  # noqa: ANN401
    page.goto("/")
    page.click("text=24 hours")
    page.wait_for_url("**/?range=24h")
    page.wait_for_selector("#charts canvas")
    assert page.locator("#charts .tabs a[aria-current]").inner_text() == "24 hours"


def test_tasks_schedules_and_workflows_are_found(page: Any, shop: Shop) -> None:  # noqa: ANN401
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/tasks")
    page.wait_for_selector("text=no mailbox")
    page.click("td.task >> text=shop.send")
    page.wait_for_url("**/jobs?q=task%3Ashop.send")
    page.goto("/workflows")
    page.click(".tabs >> text=done")
    page.wait_for_selector("text=No workflows match.")
    page.click(".tabs >> text=all")
    page.wait_for_selector(f"a[title='{shop.flow}']")


def test_dead_jobs_are_retried_from_their_error(page: Any, shop: Shop) -> None:  # noqa: ANN401
    page.goto("/dead")
    page.click("text=no mailbox")
    page.wait_for_url("**/jobs?q=state%3Adead**")
    page.click("text=Retry…")
    page.click("button:text('Redrive 2 jobs')")
    page.wait_for_selector(".notice:has-text('Retried: 2.')")
    assert shop.app.job(shop.dead).status == "ready"
    page.goto("/audit")
    assert page.locator("text=retry all").count() == 1


def test_an_event_and_what_became_of_it_are_two_clicks_away(page: Any, shop: Shop) -> None:  # noqa: ANN401
    register(shop.app.store, "clicks", "billing", from_us=0, version=b"1")
    event = shop.clicks.append(
        {"user": 7, "password": "hunter2"}, topic="user.created", headers={"request": "7f3a"}
    )
    page.goto("/streams")
    page.click("h2 >> text=clicks")
    page.wait_for_selector("h2:has-text('Subscribers')")
    page.click(f"a[title='{event.id}']")
    page.wait_for_url(f"**/streams/clicks/events/{event.position}")
    text = page.inner_text("main")
    assert "user.created" in text
    assert "7f3a" in text
    assert "hunter2" not in text
    assert page.inner_text("td[data-label='What became of it'] >> nth=0").startswith("No consumer")


def test_pages_can_be_read_without_scripts(browser: Any, address: str, shop: Shop) -> None:  # noqa: ANN401
    page = Screen(browser, address, java_script_enabled=False).page
    for path, text in (("/", "What is due"), ("/jobs", "scheduled"), ("/streams", "clicks")):
        page.goto(path)
        assert text in page.inner_text("main")
    page.goto(f"/jobs/{shop.retrying}")
    assert "mail server 17 timed out" in page.inner_text("main")


@pytest.fixture(scope="module")
def functions(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:  # noqa: ANN401
    """Give a page of a dashboard over durable functions on SQLite, which a worker runs."""
    with store_address("sqlite", tmp_path_factory.mktemp("functions")) as url:
        made = DurableShop(url)
        pages = dashboard(made.app, role="operator")
        with serving(pages) as served, made.app.worker():
            screen = Screen(browser, served)
            yield made, screen.page
            # What is refused is an error on the console, too.
            assert [error for error in screen.errors if "400 (Bad Request)" not in error] == []
        made.app.close()


def open_calls(page: Any, job: Any, state: str) -> None:  # noqa: ANN401
    """Open the page of a function, and wait until it is live in this state."""
    page.goto(f"/functions/{job.id}")
    page.wait_for_selector(f".job-head .state.s-{state}")


def test_a_function_is_signalled_on_its_page(functions: Any) -> None:  # noqa: ANN401
    shop, page = functions
    job = shop.approve.enqueue("7")
    open_calls(page, job, "waiting")
    page.click("text=Signal…")
    assert page.input_value("input[name=name]") == "approved"
    page.fill("textarea[name=value]", "{by: ann}")
    page.click("button:text('Signal')")
    page.wait_for_selector("[role=alert]:has-text('is not JSON')")
    assert page.input_value("textarea[name=value]") == "{by: ann}"
    page.fill("textarea[name=value]", '{"by": "ann"}')
    page.click("button:text('Signal')")
    page.wait_for_selector(".notice:has-text('Sent.')")
    page.wait_for_selector(".job-head .state.s-done")  # without a reload
    assert page.locator("text=Signal…").count() == 0
    assert '"by": "ann"' in page.inner_text("section:has-text('Result') pre.code >> nth=-1")
    page.click("a:text-is('5')")
    page.wait_for_url("**/calls/5")
    assert '"by": "ann"' in page.inner_text("pre.code")


def test_a_stopped_function_is_reset_on_the_page_of_a_call(functions: Any) -> None:  # noqa: ANN401
    shop, page = functions
    shop.names[0] = "one"
    job = shop.renamed.enqueue()
    open_calls(page, job, "waiting")
    page.click("a:text-is('1')")
    page.click("text=Reset to here…")
    assert page.input_value("input[name=to]") == "1"
    page.click("text=Back")
    shop.names[0] = "two"
    job.signal("go", "x")
    page.wait_for_selector(".job-head .state.s-stopped")
    assert "call 1 was one, the code now calls two" in page.inner_text(".why")
    page.goto("/functions?state=stopped")
    page.click(f"a[title='{job.id}']")
    page.click("text=Reset…")
    page.fill("input[name=to]", "99")
    page.click("button:text('Reset')")
    page.wait_for_selector("text=there is no call 99")
    page.goto(f"/functions/{job.id}/change?what=reset")
    page.fill("input[name=to]", "0")
    page.click("button:text('Reset')")
    page.wait_for_selector(".notice:has-text('continues after this call')")
    page.wait_for_selector(".job-head .state.s-done")


def test_a_function_is_forked_and_cancelled(functions: Any) -> None:  # noqa: ANN401
    shop, page = functions
    job = shop.approve.enqueue("8")
    open_calls(page, job, "waiting")
    page.click("text=Fork…")
    page.fill("input[name=to]", "2")
    page.click("button:text('Fork')")
    page.wait_for_selector(".notice:has-text('Began this one')")
    page.wait_for_selector(".job-head .state.s-waiting")
    fork = page.inner_text(".whole-id")
    assert fork != job.id
    page.click("text=Cancel…")
    page.click("button:text('Cancel')")
    page.wait_for_selector(".notice:has-text('Asked to end')")
    page.wait_for_selector(".job-head .state.s-cancelled")
    assert page.locator("tr.below:has-text('undo')").count() == 1
    open_calls(page, job, "waiting")
    page.goto("/audit")
    assert page.locator(f"tr:has-text('{fork}')").count() == 2  # forked, and cancelled
    assert page.locator("text=fork function after call 2").count() == 1
