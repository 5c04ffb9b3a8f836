"""Dead letters, paused queues and failed imports raise alerts while they last (P12)."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dueline.admin.health import examine, is_ready
from dueline.admin.read_models import Admin
from dueline.admin.watch import Watch
from dueline.coordination import failed_starts, notes
from dueline.coordination.failed_starts import FailedStart
from dueline.core.clock import SECOND_US
from dueline.core.store import Put
from dueline.foresight.alert_monitor import KIND, raised_alerts
from dueline.foresight.alerts import Alert
from dueline.foresight.dead_growth import DeadPast, _condition, after
from dueline.schedules import scheduler
from dueline.schedules.schedule import Timing
from tests.harness.addresses import world_of
from tests.harness.alert_run import STEP_S, Run, some
from tests.harness.schedules import EVERY_US, TEMPLATE
from tests.harness.world import World

RAISED_WITHIN_S = 60
ENDED_WITHIN_S = 120


@pytest.fixture(
    params=[
        pytest.param("memory", marks=pytest.mark.memory),
        pytest.param("sqlite", marks=pytest.mark.sqlite),
        pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long]),
        pytest.param("cassandra", marks=[pytest.mark.cassandra, pytest.mark.long]),
    ]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world_of(request.param, tmp_path) as made:
        made.queues.engine.catalog.configure("q", shards=2)
        yield made


def dying(world: World, number: int = 10, *, every: int = 1) -> Callable[[], None]:
    """Return what makes jobs dead-letter jobs, in each step or in one of some."""
    steps = iter(range(1_000_000))

    def enqueue() -> None:
        if next(steps) % every == 0:
            for _ in range(number):
                world.die(world.put(task="shop.bad"))

    return enqueue


def stays(run: Run, alert: Alert, enqueue: Callable[[], object], seconds: int) -> None:
    """Expect that an alert stays raised, as one."""
    kind = alert.condition.kind
    for _ in range(seconds // STEP_S):
        run.step(enqueue)
        now = [alert.since_us for alert in run.raised() if alert.condition.kind == kind]
        assert now == [alert.since_us]


def ends(run: Run, kind: str, enqueue: Callable[[], object] = lambda: None) -> None:
    for _ in range(ENDED_WITHIN_S // STEP_S):
        run.step(enqueue)
        if kind not in {alert.condition.kind for alert in run.raised()}:
            return
    raise AssertionError(run.raised())


def test_dead_letters_that_grow(world: World) -> None:
    """Two bursts, each raised within a minute and ended two minutes after."""
    run = Run(world)
    for _ in range(4):
        run.step(some(world, 5))
    for _ in range(2):
        alert = run.until_raised("dead", dying(world))
        assert "most of them of shop.bad" in alert.condition.sentence
        assert "ValueError: bad" in alert.condition.sentence
        assert alert.condition.command == "dueline dead list --queue q"
        stays(run, alert, dying(world), 180)
        ends(run, "dead", some(world, 5))


def test_dead_letters_that_grow_slowly_stay_named(world: World) -> None:
    run = Run(world)
    for _ in range(4):
        run.step(some(world, 5))
    enqueue = dying(world, 4, every=4)  # twelve a minute
    alert = run.until_raised("dead", enqueue)
    stays(run, alert, enqueue, 300)
    ends(run, "dead")


@pytest.mark.slow
def test_a_quiet_hour_raises_nothing(world: World) -> None:
    """Run a queue of which some jobs fail, and one dies each minute."""
    run = Run(world)
    enqueue, one_dies = some(world, 10), dying(world, 1, every=60 // STEP_S)
    for _ in range(3600 // STEP_S if world.store.scope == "process" else 60):
        run.step(lambda: (enqueue(), one_dies()))
    assert not run.raised()
    assert not run.log


def test_usual_deaths_are_no_growth() -> None:
    past, at_us = DeadPast(0), 0
    for step in range(2 * 24 * 240):  # one a minute
        at_us += 15 * SECOND_US
        past = after(past, {"t": step % 4 == 0}, "", at_us, is_raised=False)
        assert not past.grows
    at_us += 15 * SECOND_US
    assert not after(past, {"t": 8}, "", at_us, is_raised=False).grows
    assert after(past, {"t": 30}, "", at_us, is_raised=False).grows
    assert after(DeadPast(0), {"t": 12}, "", SECOND_US, is_raised=False).grows


def test_a_paused_queue_whose_jobs_wait(world: World) -> None:
    run, catalog = Run(world), world.queues.engine.catalog
    for _ in range(4):
        run.step(some(world, 5))
    catalog.configure("q", is_paused=True)
    idle = {"accept": lambda _: False}
    raised = run.until_raised("paused", some(world, 1), **idle)
    assert raised.condition.command == "dueline queues resume q"
    for _ in range(120 // STEP_S):
        run.step(some(world, 1), **idle)
        assert [alert.since_us for alert in run.raised()] == [raised.since_us]
    (check,) = [check for check in examine(world.queues.engine).checks if "paused" in check.finding]
    assert check.verdict == "warning"
    ready = is_ready(world.queues.engine, max_age_us=SECOND_US)
    assert [check.finding.partition(",")[0] for check in ready] == ["it is paused"]
    assert Watch(world.queues.engine).look().paused == {"q"}
    catalog.configure("q", is_paused=False)
    ends(run, "paused", some(world, 5))


def test_an_application_that_cannot_be_imported(world: World) -> None:
    run, engine = Run(world), world.queues.engine
    run.step(some(world, 5))

    def fail() -> None:
        if world.now_us // SECOND_US % 10 < STEP_S:  # as a supervisor repeats it
            failed_starts.record(engine, FailedStart("shop:app", "web-1", "No module named x."))

    for _ in range(RAISED_WITHIN_S // STEP_S):
        run.step(fail)
        if run.log:
            break
    (alert,) = run.raised()
    assert run.log == [alert.text()]
    assert "A worker of shop:app on web-1 cannot start for" in alert.condition.sentence
    assert "No module named x." in alert.condition.sentence
    stays(run, alert, fail, 300)
    assert engine.catalog.names() == ["q"]
    for checks in (examine(engine).checks, is_ready(engine, max_age_us=600 * SECOND_US)):
        (check,) = [check for check in checks if check.name == "application shop:app"]
        assert "No module named x." in check.finding
    failed_starts.clear(engine, "other:app")
    stays(run, alert, lambda: None, 15)
    failed_starts.clear(engine, "shop:app")
    ends(run, "import")


def test_a_failed_import_is_shown_without_a_leader(world: World) -> None:
    engine = world.queues.engine
    failed_starts.record(engine, FailedStart("shop:app", "web-1", "No module named x.", ("q",)))
    (alert,) = raised_alerts(engine)
    assert (alert.condition.kind, alert.condition.queue) == ("import", "q")
    assert [alert.condition for alert in Watch(engine).look().alerts] == [alert.condition]


def test_a_damaged_note_hides_no_other(world: World, caplog: pytest.LogCaptureFixture) -> None:
    engine = world.queues.engine
    run = Run(world)
    engine.catalog.configure("q", is_paused=True)
    run.until_raised("paused", some(world, 1), accept=lambda _: False)
    engine.catalog.configure("a", shards=1)
    put = notes.put(KIND, "a", b"{broken", b"1" * 8)
    world.store.commit(notes.PARTITION, (Put(put.key, put.version, put.value),))
    with caplog.at_level(logging.WARNING, "dueline"):
        assert [alert.condition.kind for alert in Admin(world.queues).alerts()] == ["paused"]
    assert "the note alerts/a is left out" in caplog.text
    run.until_raised("paused", some(world, 1), accept=lambda _: False)  # it is written anew


@pytest.mark.slow
def test_two_bursts_and_a_flaky_task(world: World) -> None:
    """Let a new task fail each time, then a third of its attempts, then each time again."""
    run = Run(world)
    for each in (1, 3, 1):
        number = 10 if each == 1 else 85
        raised = run.until_raised("failures", some(world, number), each=each)
        for _ in range(180 // STEP_S):
            run.step(some(world, number), each=each)
            assert [alert.since_us for alert in run.raised()] == [raised.since_us]
        ends(run, "failures", some(world, 5))


@pytest.mark.parametrize("error", ["", "Declined: no money", "Declined: no money."])
def test_the_sentence_of_dead_letters_ends_once(error: str) -> None:
    sentence = _condition("q", DeadPast(0, error=error)).sentence
    assert sentence.endswith("no money." if error else "minutes.")


def test_a_schedule_whose_occurrences_are_skipped(world: World) -> None:
    run, queues = Run(world), world.queues
    scheduler.put(queues, "s", TEMPLATE, Timing(every_us=EVERY_US, overlap="skip"))

    def enqueue() -> None:
        scheduler.advance_all(queues)

    run.step(enqueue)
    alert = run.until_raised("schedule", enqueue, accept=lambda _: False)
    assert alert.condition.subject == "s"
    assert "of the schedule s ran no job" in alert.condition.sentence
    assert alert.condition.command == "dueline schedules show s"
    ends(run, "schedule", enqueue)


def test_a_schedule_whose_job_expired(world: World) -> None:
    run, queues = Run(world), world.queues
    template = TEMPLATE.changed(expires_us=10 * SECOND_US)
    scheduler.put(queues, "s", template, Timing(every_us=EVERY_US))

    def enqueue() -> None:
        scheduler.advance_all(queues)

    alert = run.until_raised("schedule", enqueue, accept=lambda _: False)
    assert "expired before it started" in alert.condition.sentence
    ends(run, "schedule", enqueue)
