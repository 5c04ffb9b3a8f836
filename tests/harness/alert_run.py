"""A queue with a worker and a maintenance leader that raises alerts, by a clock of the hand."""

from collections.abc import Callable
from itertools import count

from dueline.admin.missed_occurrences import occurrences_of
from dueline.coordination import notes
from dueline.coordination.run_times import RunTimes
from dueline.core.attempt import Done as Succeeded
from dueline.core.attempt import Ended, Failed
from dueline.core.clock import SECOND_US
from dueline.core.job import Job
from dueline.core.store import Drop, Lease, Want
from dueline.foresight import alert_monitor, rates
from dueline.foresight.alert_settings import AlertSettings, write_settings
from dueline.foresight.alerts import Alert
from tests.harness.world import World

STEP_S = 5


class Run:
    """A queue with a worker and a maintenance leader, in steps of five seconds."""

    def __init__(self, world: World, *, target: str = "") -> None:
        self.world = world
        self.log: list[str] = []
        self.ids = world.queues.engine.ids
        self._run_times = RunTimes("w1", slots=4, now_us=world.now_us)
        self._number = count(1)
        self._rates = rates.task()
        self._alerts = alert_monitor.task_of(world.queues, occurrences_of)
        if target:
            write_settings(world.store, AlertSettings((("q", target),)), self.ids)

    def work(self, accept: Callable[[Job], bool] = lambda _: True, *, each: int = 20) -> None:
        """Run what is due, for no time. each: of how many jobs one fails."""
        world = self.world
        ended: list[Ended] = []
        for lane in world.queues.engine.lanes_of("q"):
            head = world.store.scan(lane, after=None, until_us=world.now_us, limit=1).jobs
            if not head or not accept(head[0]):
                continue
            jobs = world.store.claim(
                [Want(lane, 500)],
                limit=500,
                lease=Lease(world.now_us, 30 * SECOND_US, "w1", self.ids.token()),
            ).jobs
            world.store.settle([Drop(job) for job in jobs])
            bad = Failed("ValueError", "bad", "", retry=True)
            ended += [
                Ended(job, Succeeded(b"") if next(self._number) % each else bad,
                      world.now_us, world.now_us + SECOND_US)
                for job in jobs
            ]  # fmt: skip
        if ended:
            self._run_times.ended(ended, is_full=False, now_us=world.now_us)
        self._run_times.write(world.queues.engine)

    def step(self, enqueue: Callable[[], object] = lambda: None, **work: object) -> None:
        """Enqueue, work, and let five seconds pass; the leader acts each fifteen."""
        self.world.live(held=0)
        enqueue()
        self.work(**work)  # type: ignore[arg-type]
        self.world.clock.advance(STEP_S)
        if self.world.now_us // (STEP_S * SECOND_US) % 3 == 0:
            for task in (self._rates, self._alerts):
                result = task.step(self.world.queues.engine, None)
                self.log += result.warnings
                if result.puts:
                    self.world.store.commit(notes.PARTITION, result.puts)

    def until_raised(self, kind: str, enqueue: Callable[[], object], **work: object) -> Alert:
        """Step until an alert is raised, for at most a minute."""
        for _ in range(60 // STEP_S):
            self.step(enqueue, **work)
            alerts = [alert for alert in self.raised() if alert.condition.kind == kind]
            if alerts:
                assert any(alerts[0].condition.sentence in line for line in self.log)
                return alerts[0]
        raise AssertionError(f"no alert of the kind {kind}: {self.raised()}")

    def raised(self) -> list[Alert]:
        return alert_monitor.raised_alerts(self.world.queues.engine)

    def until_ended(self, enqueue: Callable[[], object], seconds: int = 180) -> None:
        for _ in range(seconds // STEP_S):
            self.step(enqueue)
            if not self.raised():
                return
        raise AssertionError(self.raised())


def some(world: World, number: int = 40, **options: object) -> Callable[[], None]:
    def enqueue() -> None:
        for _ in range(number):
            world.put(**options)  # type: ignore[arg-type]

    return enqueue
