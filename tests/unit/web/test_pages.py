"""What the pages show and change, on memory and SQLite (V8)."""

import hashlib
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Mount

from dueline.admin import redrives
from dueline.admin.redrives import PacedRedrive
from dueline.admin.search import JobFilter
from dueline.api.raw_queue import RawQueue
from dueline.coordination import failed_starts, notes
from dueline.coordination.failed_starts import FailedStart
from dueline.coordination.worker_registry import KnownTasks
from dueline.coordination.worker_requests import requests_in
from dueline.core.codec import encode
from dueline.core.durations import exact_text
from dueline.core.job import JobId
from dueline.core.store import NO_VERSION
from dueline.foresight import alert_monitor
from dueline.foresight.alert_engine import Note
from dueline.foresight.alerts import Alert, Condition
from dueline.jobs import attempt_lines, circuit_records
from dueline.jobs.cancel_requests import inbox
from dueline.jobs.circuit_records import Circuit
from dueline.jobs.pauses import pause
from dueline.jobs.queue import EnqueueRequest
from dueline.streams.groups import register
from dueline.web import dashboard
from dueline.web.dashboard import STATIC
from dueline.worker.heartbeat import Load, PresenceReporter
from tests.harness.programs import wait_for
from tests.harness.web import Shop, Visitor


@pytest.mark.slow
def test_every_page_opens_and_so_does_the_part_that_is_replaced(shop: Shop, admin: Visitor) -> None:
    for path in shop.paths():
        page = admin.text(path)
        assert page.startswith("<!doctype html>")
        part = admin.get(path, **{"hx-request": "true"})
        assert part.status_code == 200
        assert ("<!doctype" in part.text) == ("/change" in path)


@pytest.mark.slow
def test_no_text_of_the_store_becomes_html(shop: Shop, admin: Visitor) -> None:
    for path in [*shop.paths(), "/jobs?q=<script>alert(1)</script>"]:
        page = admin.text(path)
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "<b>tag" not in page
        assert not any(sign in page for sign in "\u202e\x1b")
        assert " style=" not in page
        assert not re.search(r"<script(?![^>]* src=)", page)
        assert not re.search(r"\son\w+=\"", page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e\\x1b[31m" in admin.text(
        f"/jobs/{shop.dead}"
    )


@pytest.mark.slow
def test_a_held_step_is_not_due_and_names_the_command_that_frees_it(
    shop: Shop, admin: Visitor
) -> None:
    (held,) = [job for job in shop.app.admin.list().jobs if job.step_state]
    assert held.shown_state == "held"
    page = admin.text(f"/jobs/{held.id}")
    assert '<span class="state s-held">held</span>' in page
    assert "Next check" in page
    assert f"<code>dueline flows retry {shop.flow}</code>" in page
    row = admin.text("/jobs").partition(f'title="{held.id}"')[2].partition("</tr>")[0]
    assert '<td data-label="When"><span class="none">' in row


def test_a_job_lists_every_condition_that_must_change(shop: Shop, admin: Visitor) -> None:
    pause(shop.app.engine, "mail")
    page = admin.text(f"/jobs/{shop.scheduled}")
    rows = re.findall(r'<td data-label="What must change">(.*?)</td>', page)
    first, second, third = rows
    assert first.startswith("it is not due until ")
    assert second.startswith("the queue mail is paused (<code>dueline queues resume mail</code>)")
    assert third.startswith("no live worker serves the queue mail (<code>dueline worker -q mail")
    assert '<td data-label="How it changes">By itself, <time' in page
    assert "<code>dueline queues resume mail</code></td>" in page


def test_a_running_job_is_listed_with_the_time_at_which_it_was_due(
    shop: Shop, admin: Visitor
) -> None:
    (leased,) = RawQueue(shop.app, "slow").claim(1)
    running = shop.app.admin.get(leased.id).summary
    assert running.due_us < running.at_us  # the end of its lease
    row = admin.text("/jobs").partition(f'title="{running.id}"')[2].partition("</tr>")[0]
    assert f'<td data-label="When"><time datetime="{exact_text(running.due_us)}"' in row
    assert exact_text(running.at_us) not in row


def test_the_overview_names_tasks_that_no_live_worker_knows(shop: Shop, admin: Visitor) -> None:
    shop.app.unchecked("shop.<b>new", queue="mail").enqueue()
    shop.app.run_worker(["mail"], burst=True, monitor=False)
    engine = shop.app.engine
    report = PresenceReporter(
        engine, "w", serving=("mail",), known=KnownTasks(("shop.send",))
    ).report
    report(Load(1, 0))
    assert "No live worker knows task shop.&lt;b&gt;new" in admin.text("/")


def test_the_overview_shows_failed_imports_and_no_damaged_note(shop: Shop, admin: Visitor) -> None:
    engine = shop.app.engine
    failed_starts.record(engine, FailedStart("shop:<app>", "web-1", "No module named x."))
    put = notes.put("alerts", "mail", b"{broken", b"1" * 8)
    engine.store.commit(notes.PARTITION, (put,))
    text = admin.text("/")
    assert "A worker of shop:&lt;app&gt; on web-1 cannot start for" in text
    assert "dueline worker &#39;shop:&lt;app&gt;&#39;" in text


def test_the_overview_shows_the_alerts_that_are_raised(shop: Shop, admin: Visitor) -> None:
    engine = shop.app.engine
    now_us = engine.time.latest_us()
    alerts = [
        Alert(
            Condition(kind, "mail", "shop.send", f"Too many <{kind}>.", "dueline top"),
            now_us,
            now_us,
        )
        for kind in ("failures", "budget")
    ]
    note = encode(Note(alerts))
    engine.store.commit(
        notes.PARTITION, [notes.put(alert_monitor.KIND, "mail", note, engine.ids.token())]
    )
    text = admin.text("/")
    assert "Too many &lt;failures&gt;." in text
    assert "/jobs?q=state%3Aretrying%20queue%3Amail%20task%3Ashop.send" in text
    assert "<code>dueline top</code>" in text


def test_workers_are_asked_after_a_confirmation(shop: Shop, admin: Visitor) -> None:
    # O13
    report = PresenceReporter(shop.app.engine, "w1", serving=("mail",)).report
    report(Load(1, 0))
    assert "/workers/change?what=stop&amp;worker=w1" in admin.text("/workers")
    assert "Stop one worker" in admin.text("/workers/change?what=stop&worker=w1")
    form = {"what": "quiet", "worker": "w1"}
    assert admin.post("/workers/change", form).status_code == 303
    (asked,) = requests_in(inbox(shop.app.engine.store, "w1"))
    assert asked.kind == "quiet"
    assert "quiet worker" in admin.text("/audit")
    for wrong in ({"what": "x"}, {"what": "stop", "worker": "w9"}):
        assert admin.post("/workers/change", wrong).status_code in (400, 404)
    assert Visitor(dashboard(shop.app)).post("/workers/change", form).status_code == 403


def test_a_group_and_a_shard_of_a_stream_are_paused(shop: Shop, admin: Visitor) -> None:
    # O13
    register(shop.app.store, "clicks", "billing", from_us=0, version=b"1")
    assert "group billing" in admin.text("/streams/clicks/pause?group=billing")
    admin.post("/streams/clicks/pause", {"group": "billing"})
    admin.post("/streams/clicks/pause", {"group": "", "shard": "1"})
    page = admin.text("/streams")
    assert "group billing" in page
    assert "shard 1" in page
    admin.post("/streams/clicks/resume", {"group": "", "shard": "1"})
    assert shop.app.stream("clicks").look().paused == (("billing", None),)
    assert "resume stream" in admin.text("/audit")
    for form in ({}, {"shard": "x"}):
        assert admin.post("/streams/clicks/pause", form).status_code == 400
    form = {"group": "billing"}
    assert Visitor(dashboard(shop.app)).post("/streams/clicks/pause", form).status_code == 403


def test_a_redrive_is_shown_and_stopped(shop: Shop, admin: Visitor) -> None:
    # R17
    paced = PacedRedrive(shop.app.queues, JobFilter(queue="mail"), "queue:mail", 1, "ann")
    paced.begin()
    page = admin.text("/dead")
    assert "queue:mail" in page
    path = f"/dead/redrives/{paced.redrive.id}/stop"
    assert path in page
    assert admin.post(path).status_code == 303
    assert shop.app.admin.redrives()[0].state == "stopped"
    assert path not in admin.text("/dead")
    assert admin.post("/dead/redrives/x/stop").status_code == 404
    assert Visitor(dashboard(shop.app)).post(path).status_code == 403


def test_a_redrive_is_begun_at_a_rate_and_resumed(
    shop: Shop, admin: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # R17
    monkeypatch.setattr(redrives, "NOTE_EVERY_US", 10_000)
    form = {"q": "state:dead queue:mail", "what": "retry", "rate": "1/h"}
    assert 'name="rate"' in admin.text("/jobs/change?q=state:dead+queue:mail&what=retry")
    assert (
        admin.post("/jobs/change", form).headers["location"].endswith("/dead?notice=redriving&n=1")
    )
    (one,) = shop.app.admin.redrives()
    admin.post(f"/dead/redrives/{one.id}/stop")
    wait_for(lambda: f"/dead/redrives/{one.id}/resume" in admin.text("/dead"), "it can be resumed")
    assert admin.post(f"/dead/redrives/{one.id}/resume").status_code == 303
    assert shop.app.admin.redrives()[0].state == "running"
    admin.post(f"/dead/redrives/{one.id}/stop")
    assert admin.post("/jobs/change", form | {"rate": "often"}).status_code == 400


def test_a_job_shows_what_its_handler_logged(shop: Shop, admin: Visitor) -> None:
    # V11
    job = shop.app.admin.list("state:dead").jobs[0].id
    engine = shop.app.engine
    row = engine.store.find([JobId(bytes.fromhex(job))])[0]
    assert row is not None
    now_us = engine.time.latest_us()
    engine.store.together([attempt_lines.written(engine, row, now_us, "<b>it says</b>")])
    assert "&lt;b&gt;it says&lt;/b&gt;" in admin.text(f"/jobs/{job}")


def test_prometheus_reads_what_the_store_holds(shop: Shop, admin: Visitor) -> None:
    found = {
        sample.labels["queue"]: sample.value
        for family in text_string_to_metric_families(admin.text("/metrics"))
        for sample in family.samples
        if sample.name == "dueline_jobs" and sample.labels["state"] == "dead"
    }
    assert found["mail"] == len(shop.app.admin.list("queue:mail state:dead").jobs) > 0


def test_the_overview_shows_counts_and_what_is_due(shop: Shop, admin: Visitor) -> None:
    assert "No worker serves slow" in admin.text("/")
    wait_for(lambda: 'class="high"' in admin.text("/"), "the jobs have been counted")
    series = admin.get("/series.json").json()
    assert len(series["at"]) == len(series["done"]) == len(series["p99"]) == len(series["ready"])
    assert series["done"][-1] is series["failed"][-1] is None  # this step is not over
    assert series["ready"][-1] == 1


def test_a_filter_is_the_address(shop: Shop, admin: Visitor) -> None:
    found = admin.text("/jobs?q=tenant:acme+priority>3")
    assert shop.scheduled in found
    assert shop.retrying not in found
    assert 'value="tenant:acme priority&gt;3"' in found
    assert shop.dead in admin.text('/jobs?q=state:dead+error:"no+mailbox"')
    assert "No jobs match." in admin.text("/jobs?q=task:nothing")
    bad = admin.get("/jobs?q=colour:red")
    assert bad.status_code == 400
    assert "colour:red" in bad.text
    assert admin.get(f"/jobs?q={shop.done}").headers["location"] == f"/jobs/{shop.done}"


def test_lists_have_pages(shop: Shop, admin: Visitor) -> None:
    shop.send.using(after=60, queue="many").enqueue_many([(f"u{n}",) for n in range(120)])
    seen: list[str] = []
    path = "/jobs?q=queue:many"
    while path:
        page = admin.text(path)
        seen += re.findall(r'<a class="id" href="/jobs/([0-9a-f]{32})"', page)
        after = re.search(r'rel="next" href="([^"]*)"', page)
        path = after[1].replace("&amp;", "&") if after else ""
    assert len(seen) == len(set(seen)) == 120


def test_a_job_shows_attempts_result_and_no_secrets(shop: Shop, admin: Visitor) -> None:
    page = admin.text(f"/jobs/{shop.done}")
    assert "hunter2" not in page
    assert "[redacted]" in page  # the token of the result
    scheduled = admin.text(f"/jobs/{shop.scheduled}")
    assert "hunter2" not in scheduled
    assert "&#34;to&#34;" in scheduled  # the name of the parameter
    assert "Why it is not running" in scheduled
    assert "Traceback" in admin.text(f"/jobs/{shop.dead}")
    assert "TimeoutError: mail server 17 timed out" in admin.text(f"/jobs/{shop.retrying}")


def test_a_job_says_once_that_its_arguments_are_not_shown(shop: Shop, admin: Visitor) -> None:
    request = EnqueueRequest("default", "t", 64, [b"sealed"])
    job = shop.app.queues.enqueue(request)[0].id.hex()
    page = admin.text(f"/jobs/{job}")
    assert page.lower().count("not shown") == 1
    assert "6 bytes, not shown: The arguments are in the codec 64, which only an" in page


def test_a_job_is_changed(shop: Shop, admin: Visitor) -> None:
    assert "Retried: 1." in admin.post(f"/jobs/{shop.dead}/retry", follow=True).text
    assert shop.app.job(shop.dead).status == "ready"
    admin.post(f"/jobs/{shop.scheduled}/reschedule", {"after": "2h"})
    assert "in 1h59m" in admin.text(f"/jobs/{shop.scheduled}")
    admin.post(f"/jobs/{shop.scheduled}/cancel")
    assert shop.app.job(shop.scheduled).status == "cancelled"
    assert admin.post(f"/jobs/{shop.done}/cancel").status_code == 409
    audit = admin.text("/audit")
    assert audit.count('<td data-label="Who">local</td>') == 4
    assert "rejected: " in audit


def test_all_that_match_are_changed_after_a_confirmation(shop: Shop, admin: Visitor) -> None:
    page = admin.text("/jobs/change?q=state:dead+task:shop.send&what=retry")
    assert "Redrive 2 jobs" in page
    done = admin.post("/jobs/change", {"q": "state:dead task:shop.send", "what": "retry"})
    assert done.headers["location"].endswith("notice=retried&n=2")
    assert "No dead-letter jobs." in admin.text("/dead")
    assert admin.get("/jobs/change?q=state:done&what=retry").status_code == 400
    assert admin.get("/jobs/change?q=state:dead&what=cancel").status_code == 400
    admin.post("/jobs/change", {"q": "queue:slow", "what": "cancel"})
    assert shop.app.job(shop.ready).status == "cancelled"


def test_expired_jobs_that_wait_are_cancelled_together(shop: Shop, admin: Visitor) -> None:
    # C15: a worker has ended one of them
    expiring = shop.send.using(expires=0.001)
    ended = expiring.enqueue("ann")
    wait_for(lambda: ended.status == "expired", "it has expired")
    shop.app.run_worker(["mail"], burst=True, monitor=False)
    waiting = expiring.enqueue("bob")
    wait_for(lambda: waiting.status == "expired", "it has expired")
    page = admin.text("/jobs?q=state:expired")
    assert waiting.id in page
    assert ended.id in page
    assert "<th>Ended</th>" in page
    assert re.findall(r"what=(\w+)", page) == ["cancel"]
    page = admin.text("/jobs/change?q=state:expired&what=cancel")
    assert "Cancel 1 job" in page
    assert waiting.id in page
    assert ended.id not in page
    done = admin.post("/jobs/change", {"q": "state:expired", "what": "cancel"})
    assert done.headers["location"].endswith("notice=cancelled&n=1")
    assert (waiting.status, ended.status) == ("cancelled", "expired")
    assert "0 <small>jobs match" in admin.text("/jobs/change?q=state:expired&what=cancel")
    assert admin.get("/jobs/change?q=state:expired&what=retry").status_code == 400


def test_dead_letters_are_grouped_by_error(shop: Shop, admin: Visitor) -> None:
    page = admin.text("/dead")
    link = re.search(r'href="(/jobs/change[^"]*)">Redrive', page)
    assert link
    assert "2 <small>jobs match" in admin.text(link[1].replace("&amp;", "&"))


def test_a_queue_is_paused_and_configured(shop: Shop, admin: Visitor) -> None:
    admin.post("/queues/mail/pause")
    assert "paused" in admin.text("/queues")
    admin.post("/queues/mail/resume")
    assert "resumes" not in admin.text("/queues/mail")
    admin.post(
        "/queues/mail/settings",
        {"lease": "45s", "history": "all", "shards": "2", "dead_in_order": "skip"},
    )
    shop.app.engine.catalog.forget("mail")
    settings = shop.app.engine.catalog.settings("mail")
    assert (settings.lease_us, settings.history, settings.shards) == (45_000_000, "all", 2)
    assert settings.dead_in_order == "skip"
    assert admin.post("/queues/none/pause").status_code == 404
    assert admin.post("/queues/mail/settings", {"shards": "x"}).status_code == 400


def test_schedules_limits_and_workflows_are_changed(shop: Shop, admin: Visitor) -> None:
    admin.post("/schedules/nightly/pause")
    assert "paused" in admin.text("/schedules")
    admin.post("/schedules/nightly/resume")
    assert admin.post("/schedules/nightly/trigger").status_code == 303
    admin.post("/limits/gpu", {"capacity": "5"})
    assert "capacity 5" in admin.text("/limits")
    assert "rate: 20 in 1s" in admin.text("/limits")
    assert "All 20 starts are left" in admin.text("/limits")
    for _ in range(3):
        shop.app.unchecked("shop.send", queue="mail").using(limits=["bank"]).enqueue("ann")
    shop.app.rate("bank", 20, per=3600)
    shop.app.run_worker(["mail"], burst=True, monitor=False)
    assert "17 of 20" in admin.text("/limits")
    page = admin.text(f"/workflows/{shop.flow}")
    assert "Retry dead steps" in page
    assert page.count('class="box ') == 3
    assert page.count('class="edge"') == 2
    admin.post(f"/workflows/{shop.flow}/cancel")
    assert "workflow" in admin.text("/audit")


def test_streams_show_the_lag_of_each_shard(shop: Shop, admin: Visitor) -> None:
    with shop.app.consuming():
        while any(lag.rows for lag in shop.clicks.lag("billing")):
            pass
    shop.clicks.append_many([({"n": n}, str(n)) for n in range(9)])
    page = admin.text("/streams")
    assert page.count('class="shard h') == 3
    assert '<td class="n" data-label="Unread">9</td>' in page


def test_a_stream_shows_its_events_and_who_gets_them(shop: Shop, admin: Visitor) -> None:
    register(shop.app.store, "clicks", "billing", from_us=0, version=b"1")
    shop.clicks.pause(group="billing")
    event = shop.clicks.append({"token": "hunter2"}, topic="user.created", headers={"by": "ann"})
    page = admin.text("/streams/clicks")
    assert "kept for" in page
    assert page.count('<span class="state s-paused">paused</span>') == 2  # the pause, and who
    assert f'href="/streams/clicks/events/{event.position}"' in page
    page = admin.text(f"/streams/clicks/events/{event.id}")
    assert "Group billing is paused" in page
    assert "<dt>Header by</dt><dd>ann</dd>" in page
    assert "hunter2" not in page
    assert admin.get("/streams/clicks/events/x").status_code == 400
    job = shop.send.using(headers={"topic-event": event.id}, after=60).enqueue("ann")
    assert f'href="/streams/topics/events/{event.id}">of a topic' in admin.text(f"/jobs/{job.id}")
    assert admin.get("/streams/nosuch").status_code == 404


def test_the_dashboard_works_below_a_path(shop: Shop) -> None:
    host = Starlette(routes=[Mount("/jobs-of-shop", dashboard(shop.app, role="operator"))])
    visitor = Visitor(host)
    page = visitor.text("/jobs-of-shop/queues")
    assert 'href="/jobs-of-shop/jobs"' in page
    assert visitor.get("/jobs-of-shop/static/dashboard.css").status_code == 200
    visitor.text("/jobs-of-shop/login")
    done = visitor.post("/jobs-of-shop/queues/mail/pause", {"csrf": visitor.csrf("/jobs-of-shop")})
    assert done.headers["location"].startswith("/jobs-of-shop/queues/mail?")


def test_missing_pages_and_jobs_say_so(shop: Shop, admin: Visitor) -> None:
    assert admin.get("/nothing").status_code == 404
    assert admin.get(f"/jobs/{'0' * 32}").status_code == 404
    assert admin.get("/jobs/xyz").status_code == 400
    assert admin.get("/queues/none").status_code == 404
    assert admin.get(f"/workflows/{'0' * 32}").status_code == 404
    assert admin.get("/jobs?after=x").status_code == 400


def test_vendored_files_are_those_of_their_checksums() -> None:
    folder = STATIC / "vendor"
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    sums = {name: digits for digits, name in (line.split("  ") for line in lines)}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in _scripts(folder)}
    assert found == sums
    readme = (folder / "README.md").read_text()
    assert all(name in readme for name in found)


def _scripts(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix in (".js", ".css")]


def test_a_dead_job_is_done_with_a_result(shop: Shop, admin: Visitor) -> None:
    path = f"/jobs/{shop.dead}"
    assert "Done with result" in admin.text(path)
    assert admin.post(f"{path}/settle", {"value": "{"}).status_code == 400
    assert (
        "Done with the result: 1."
        in admin.post(f"{path}/settle", {"value": '"by hand"'}, follow=True).text
    )
    assert shop.app.job(shop.dead).result(timeout=0) == "by hand"


def test_a_queue_names_its_tasks_that_paused_themselves(shop: Shop, admin: Visitor) -> None:
    assert "paused by itself" not in admin.text("/queues/mail")
    engine, circuit = shop.app.queues.engine, Circuit(opened_us=1, failed=5, of=10, probe_us=2)
    circuit_records.write(engine, "mail", "shop.send", circuit, NO_VERSION)
    assert "shop.send is paused by itself: 5 of its last 10 attempts" in admin.text("/queues/mail")
