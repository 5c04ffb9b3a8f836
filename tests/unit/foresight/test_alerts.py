"""Alerts: each kind provoked on a queue and raised within a minute, none on a quiet day (P12)."""

import json
import re
from collections.abc import Iterator
from itertools import count
from math import exp
from pathlib import Path
from typing import Self

import pytest

from dueline import Dueline
from dueline.api.alerts import signature, webhook_caller
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput
from dueline.foresight import rates
from dueline.foresight.alert_settings import AlertSettings, read_settings, write_settings
from dueline.foresight.alerts import CALM_US, Condition, after
from dueline.foresight.failing_tasks import look_at
from tests.harness.alert_run import STEP_S, Run, some
from tests.harness.world import EVERY_KIND, World, world_on


@pytest.fixture(params=EVERY_KIND)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = world_on(request.param, tmp_path)
    made.queues.engine.catalog.configure("q", shards=2)
    yield made
    made.store.close()


@pytest.mark.slow
def test_a_quiet_while_raises_nothing(world: World) -> None:
    run = Run(world, target="p99<2s")
    for turn in range(120):
        run.step(some(world, 10 + turn % 7))
    assert not run.raised()
    assert not run.log


@pytest.mark.slow
def test_a_shard_that_stands_still(world: World) -> None:
    run = Run(world)
    run.step(some(world))
    found = run.until_raised("shard", some(world), accept=lambda job: job.lane.shard != 1)
    assert found.condition.subject == "1"
    assert "other shards go on" in found.condition.sentence
    assert found.condition.command == "dueline shards lag --queue q"
    run.until_ended(some(world))


def test_a_queue_without_workers_stands_still(world: World) -> None:
    run = Run(world)
    run.world.live = lambda **_: None  # type: ignore[method-assign]
    found = run.until_raised("shard", some(world, 3), accept=lambda _: False)
    assert "no live worker claims from the queue" in found.condition.sentence


def test_a_busy_shard_does_not_stand_still(world: World) -> None:
    run = Run(world)
    live = world.live
    world.live = lambda **_: live(held=4)  # type: ignore[method-assign]
    for _ in range(12):
        run.step(some(world, 1), accept=lambda _: False)
    assert not run.raised()


@pytest.mark.slow
def test_an_error_budget_that_burns(world: World) -> None:
    run = Run(world, target="p99<2s")
    for _ in range(24):
        run.step(some(world))
    found = run.until_raised("budget", some(world, after_s=-6))
    assert "the error budget of p99<2s burns" in found.condition.sentence
    run.until_ended(some(world), seconds=400)


@pytest.mark.slow
def test_a_large_budget_is_used_up_by_half_of_the_starts(world: World) -> None:
    run = Run(world, target="p80<2s")
    for _ in range(24):
        run.step(some(world))
    run.until_raised("budget", some(world, 80, after_s=-6))


def test_a_tenant_that_starves(world: World) -> None:
    run = Run(world)
    world.put(tenant="slow", priority=-1)

    def enqueue() -> None:
        some(world, 8, tenant="a")()
        some(world, 8, tenant="b")()

    found = run.until_raised("tenant", enqueue, accept=lambda job: job.lane.tenant != "slow")
    assert found.condition.subject == "slow"
    assert found.condition.command.endswith("--tenant slow")
    run.until_ended(enqueue)


def test_a_paused_tenant_does_not_starve(world: World) -> None:
    run = Run(world)
    world.queues.engine.catalog.configure("q", paused_tenants=("slow",))
    world.put(tenant="slow")
    for _ in range(15):
        run.step(some(world, tenant="a"), accept=lambda job: job.lane.tenant != "slow")
    assert not run.raised()


@pytest.mark.slow
def test_failures_that_jump(world: World) -> None:
    run = Run(world)
    for _ in range(30):
        run.step(some(world))
    found = run.until_raised("failures", some(world), each=1)
    assert found.condition.subject == "t"
    assert re.search("usually [56]% do", found.condition.sentence)
    for _ in range(240 // STEP_S):
        run.step(some(world), each=1)
        assert [alert.since_us for alert in run.raised()] == [found.since_us]
    run.until_ended(some(world), seconds=120)
    run.until_raised("failures", some(world), each=1)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "each"), [(10, 1), (85, 3)])
def test_a_new_task_that_fails_is_named_as_long_as_it_does(
    world: World, number: int, each: int
) -> None:
    """What goes on failing does not become usual."""
    run = Run(world)
    found = run.until_raised("failures", some(world, number), each=each)
    for _ in range(600 // STEP_S):
        run.step(some(world, number), each=each)
        assert [alert.since_us for alert in run.raised()] == [found.since_us]
    run.until_ended(lambda: None, seconds=120)
    for _ in range(120 // STEP_S):
        run.step(some(world, number), each=100)
    assert not run.raised()
    run.until_raised("failures", some(world, number), each=each)


def test_a_new_task_of_which_just_half_fails_is_named_whenever_it_is_counted() -> None:
    for failed in range(20, 40):
        for gap_s in (5, 7, 15, 16):
            found, now_us = None, 1_000 * SECOND_US
            for _ in range(2):
                now_us += gap_s * SECOND_US
                counted = rates.Counted(ended={"t": 2 * failed}, failed={"t": failed})
                found = rates.after_counting(found, counted, now_us)
            assert found is not None
            _, (condition,) = look_at({}, found, (), queue="q", now_us=now_us)
            assert (condition.kind, condition.facts["share"]) == ("failures", 0.5)


def test_what_is_rare_is_forgotten() -> None:
    # A sum that is rounded to more than what a step takes away would stay for ever.
    sums = rates.Sums().after(0, 2)
    for _ in range(4 * 24 * 60 * 4):
        sums = sums.after(15 * SECOND_US, 0)
    assert sums.day == pytest.approx(2 * exp(-4), rel=0.01)


def test_a_burst_to_come_that_is_too_large(world: World) -> None:
    run = Run(world, target="p95<10s")
    for _ in range(12):
        run.step(some(world, 5))
    some(world, 400, after_s=1800)()
    found = run.until_raised("forecast", some(world, 5))
    assert "of the jobs that are due within the hour" in found.condition.sentence
    due_us = int(found.condition.facts["at_us"])
    assert 1700 < (due_us - world.now_us) / SECOND_US < 1830
    assert found.condition.command == 'dueline workers wanted --queue q --target "p95<10s"'


def test_a_wait_that_grows(world: World) -> None:
    run = Run(world, target="p99<10m")
    found = run.until_raised("forecast", some(world, 5), accept=lambda _: False)
    assert "the wait of its oldest job grows by" in found.condition.sentence


@pytest.mark.slow
def test_a_wait_that_grows_slowly_is_watched_for_longer(world: World) -> None:
    run = Run(world, target="p99<30s")
    lanes = count(1)

    def enqueue() -> None:  # a job each half second, in a lane of its own
        for half in range(2 * STEP_S):
            world.put(after_s=half / 2, priority=next(lanes))

    for second in range(0, 160, STEP_S):
        wait_us = (6 + second / 10) * SECOND_US
        run.step(enqueue, accept=lambda job, most=wait_us: world.now_us - job.due_us > most)
        if second == 120:
            assert not run.raised()
    (found,) = [one for one in run.raised() if one.condition.kind == "forecast"]
    assert "the wait of its oldest job grows by 6s a minute" in found.condition.sentence


def test_alerts_are_raised_once_and_end_when_it_is_calm() -> None:
    one = Condition("shard", "q", "1", "It stands.", "dueline shards lag")
    alerts, news = after([], [one], 100)
    assert [(two.since_us, two.ended_us) for two in news] == [(100, 0)]
    alerts, news = after(alerts, [one], 200)
    assert not news
    alerts, news = after(alerts, [], 200 + CALM_US - 1)
    assert (len(alerts), news) == (1, [])
    alerts, news = after(alerts, [], 200 + CALM_US)
    assert not alerts
    assert news[0].text() == "alert ended after 1m: queue q, shard 1"
    assert news[0].id == "shard q 1 100"


def test_alerts_can_be_switched_off(world: World) -> None:
    write_settings(world.store, AlertSettings(is_on=False), world.queues.engine.ids)
    run = Run(world)
    for _ in range(12):
        run.step(some(world, 3), accept=lambda _: False)
    assert not run.raised()


# The webhook


def test_a_webhook_is_a_signed_job(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_on("memory", Path())
    engine = world.queues.engine
    write_settings(world.store, AlertSettings((), "hooks"), engine.ids)
    run = Run(world)
    run.until_raised("shard", some(world, 3), accept=lambda _: False)
    job = next(iter(engine.jobs_of("hooks")))
    (body,) = json.loads(job.body)
    report = json.loads(body)
    assert job.task == "dueline.webhook"
    assert (report["status"], report["kind"], report["queue"]) == ("raised", "shard", "q")
    assert all(report[name] for name in ("id", "since", "evidence", "command", "facts"))
    sent: list[object] = []

    class Answer:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read(self, _: int) -> bytes:
            return b""

    def urlopen(request: object, timeout: float) -> Answer:
        sent.append((request, timeout))
        return Answer()

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    webhook_caller("https://example.com/hook", "s" * 16)(body)
    request = sent[0][0]  # type: ignore[index]
    assert request.data == body.encode()
    seconds, signed = request.headers["Dueline-signature"].split(",")
    assert signed == f"v1={signature('s' * 16, int(seconds[2:]), body)}"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"targets": {"mail": "soon"}}, "is not a target"),
        ({"targets": {"Mail!": "p99<2s"}}, "is not a queue name"),
        ({"webhook": "ftp://x/y", "secret": "s" * 16}, "`webhook` must be an http or https URL"),
        ({"webhook": "https://x/y", "secret": "short"}, "`secret` must be a string of at least"),
        ({"webhook": "https://x/y"}, "`secret` must be a string of at least"),
    ],
)
def test_settings_are_checked(options: dict[str, object], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        Dueline("memory://alerts").alerts(**options)  # type: ignore[arg-type]


def test_settings_are_stored_with_the_application() -> None:
    app = Dueline("memory://")
    app.alerts({"mail": "p99<2s", "*": "p95<1m"}, webhook="https://x/y", secret="s" * 16)
    settings = read_settings(app.store)
    assert settings == AlertSettings()
    app.queues  # noqa: B018  (opens the store)
    settings = read_settings(app.store)
    assert str(settings.target("mail")) == "p99<2s"
    assert str(settings.target("other")) == "p95<1m"
    assert settings.webhook_queue == "default"
    assert "dueline.webhook" in app.tasks
    app.close()
