"""One run of a queue with workflows, from a seed to a verdict.

Several processes start workflows, another sends signals, and at the end all workflows complete.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from dueline.core.call_options import AwaitedJobs, read_options
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import decode
from dueline.core.errors import BadInput, Conflict, EnqueueUnknown, NotFound, StoreUnavailable
from dueline.core.job import JobId
from dueline.core.pagination import records_in
from dueline.core.store import Store
from dueline.jobs import dependencies, results, workflow_control
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Context
from dueline.workflows import records, workflow
from dueline.workflows.graph import BLOCK, Node, lay_out
from dueline.workflows.parts import Failures, Part, Step, StepCall, Wait, graph, group, pipeline
from dueline.workflows.readiness import End, Failure, evaluate
from dueline.workflows.workflow import Start, WorkflowView
from simulation.data import Data, kind_of
from simulation.life import Life, lived
from simulation.people import AHEAD_US, BETWEEN_US, Town
from simulation.scenario import PRIORITIES, QUEUE, TENANTS, scenario_of
from simulation.shop import RunLog, Shop, call_of
from simulation.tape import Tape
from simulation.world import Process, World

DEPTH_MAX: Final = 2
WORKFLOWS_MAX: Final = 3
FAILURES: Sequence[Failures] = ("stop", "skip", "collect", "cancel")
SIGNALS: Final = ("go", "on")
AGAIN_US: Final = 2 * SECOND_US
MANY: Final = 1_000_000

FLOW_VERDICTS: Final = ("too early", "given wrongly", "undone wrongly", "not ended", "told apart")
"""Verdicts on such runs only: a step started before its dependencies ended, or received wrong
inputs; a step was undone wrongly, or not undone; a workflow did not end; the workflow and the
queue disagree about the end of a step."""


class _Ran(NamedTuple):
    """A call of a step's handler: its start, its end and its inputs."""

    place: int
    job: JobId
    given: Sequence[Any]


class _Ledger:
    """Workflows of a run, and inputs and results of their handlers."""

    def __init__(self) -> None:
        """Start empty."""
        self.starters: list[Process] = []
        self.starts: list[Start] = []
        self.stored: list[Start] = []
        self.awaited: dict[JobId, JobId] = {}
        """The step of another workflow that a step waits for."""
        self.ran: list[_Ran] = []
        self.gave: dict[tuple[JobId, str], int] = {}
        """Time when a handler first returned a value."""
        self.places = iter(range(MANY))


class _FlowShop(Shop):
    """Records inputs and results of step handlers; each result is different."""

    def __init__(self, world: World, diary: RunLog, ledger: _Ledger) -> None:
        """Take the world, its event log, and the ledger."""
        super().__init__(world, diary)
        self._ledger = ledger

    def work(self, context: Context, /, *call: Any) -> int:  # noqa: ANN401  (what steps gave)
        """Run a step."""
        *given, number, took_us, fate = call
        job, ledger = JobId(bytes.fromhex(context.job_id.hex())), self._ledger
        ledger.ran.append(_Ran(next(ledger.places), job, given))
        value = super().work(context, number, took_us, fate) * 100 + context.fence
        ledger.gave.setdefault((job, str(value)), next(ledger.places))
        return value


class _Drawing:
    """Draws workflows."""

    def __init__(self, world: World) -> None:
        """Take the world, whose tape has the choices."""
        self._world = world
        self._tape = world.tape
        self._numbers = iter(range(1, MANY))

    def whole(self) -> Part:
        """Draw a workflow with at least one task, so that it has a queue."""
        return pipeline(self._step(can_undo=True), self._part(0), self._step())

    def _part(self, depth: int) -> Part:
        """Draw a part; lower choices give simpler parts."""
        tape = self._tape
        kind = tape.pick(6 if depth < DEPTH_MAX else 2)
        if kind == 2 and tape.pick(2):
            return Wait(SIGNALS[tape.pick(len(SIGNALS))], (0, SECOND_US)[tape.pick(2)])
        if kind in (2, 3):
            parts = [self._part(depth + 1) for _ in range(2 + tape.pick(2))]
            how = tape.pick(3)
            return pipeline(*parts, on_failure=self._handler() if how == 2 else FAILURES[how])  # type: ignore[arg-type]
        if kind == 4:
            parts = [self._part(depth + 1) for _ in range(tape.pick(4))]
            return group(
                *parts,
                failures=FAILURES[tape.pick(len(FAILURES))],
                at_least=(None, 0.5)[tape.pick(2)],
            )
        if kind == 5:
            names = ("a", "b", "c", "d")
            return graph(
                {
                    name: (
                        self._step(can_undo=True),
                        *(need for need in names[:place] if tape.pick(2)),
                    )
                    for place, name in enumerate(names)
                }
            )
        return self._step(can_undo=True)

    def _handler(self) -> Step:
        """Draw a step that gets the description of a failure."""
        return replace(self._step(), takes=True)

    def _step(self, *, can_undo: bool = False) -> Step:
        tape = self._tape
        ahead_us = AHEAD_US[tape.pick(len(AHEAD_US))]
        due_us = self._world.now_us + ahead_us if ahead_us else None
        expires_us = None
        if tape.pick(12) == 11:
            expires_us = self._world.now_us + ahead_us + SECOND_US * (1 + tape.pick(9))
        call = StepCall(
            "work",
            QUEUE,
            0,
            call_of(tape, next(self._numbers)),
            PRIORITIES[tape.pick(len(PRIORITIES))],
            TENANTS[tape.pick(len(TENANTS))],
            due_us=due_us,
            expires_us=expires_us,
        )
        step = Step("work", lambda _given: call, takes=tape.pick(5) < 4)
        return step.undone_by(self._step()) if can_undo and tape.pick(6) == 5 else step


def live(  # noqa: C901  (its nested functions are counted as its own)
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Run one seed; the same seed, or the same tape with it, gives the same run.

    Its verdicts are those of a queue's run, and FLOW_VERDICTS.
    """
    tape = Tape(seed, given)
    scenario = scenario_of(seed, tape)
    scenario = scenario._replace(
        is_stepped=bool(seed >> 4 & 1), settings=replace(scenario.settings, keep_us=DAY_US)
    )
    world = World(tape, trace=trace)
    data = Data(world, kind_of(seed, is_stepped=scenario.is_stepped))
    ledger, drawing = _Ledger(), _Drawing(world)

    def begin(town: Town) -> None:
        for _ in range(min(2, scenario.producers)):
            town.start_person("starter", start_some)
        town.start_person("signaller", signal)
        town.start_person("closer", close)
        if scenario.has_operator:
            town.start_operator()
        town.look_after_workers()

    def start_some(town: Town, queues: Queues) -> None:
        ledger.starters.append(world.here())
        for _ in range(1 + tape.pick(WORKFLOWS_MAX)):
            _start(town, queues, ledger, drawing.whole())
            world.sleep(BETWEEN_US[tape.pick(len(BETWEEN_US))])

    def signal(_town: Town, queues: Queues) -> None:
        while not world.is_healed:
            world.sleep(AGAIN_US)
            for start in list(ledger.starts):
                if tape.pick(2):
                    with suppress(StoreUnavailable):
                        _signal_all(queues, start)

    def close(town: Town, queues: Queues) -> None:
        while not (world.is_healed and all(starter.is_dead for starter in ledger.starters)):
            world.sleep(SECOND_US)
        for start in ledger.starts:
            town.insist(partial(workflow.send, queues.engine, start, again=True))
        left = list(ledger.starts)
        while left:
            for start in left:
                town.insist(partial(_signal_all, queues, start))
                town.insist(partial(_retry, queues, start))
            world.sleep(AGAIN_US)
            left = [start for start in left if not _is_over(data.store, start)]

    def judge(_diary: RunLog, faults: dict[str, list[str]]) -> None:
        faults.pop("wrong", None)  # steps give another value each time
        waits = {wait.id.hex() for wait in _waits(ledger)}
        faults["phantom"] = [job for job in faults.get("phantom", ()) if job not in waits]
        faults |= _judged(ledger, data)
        for verdict in [verdict for verdict, stories in faults.items() if not stories]:
            del faults[verdict]

    return lived(
        world, scenario, data, begin, seed=seed, judge=judge,
        open_shop=lambda world, diary: _FlowShop(world, diary, ledger),
    )  # fmt: skip


def _start(town: Town, queues: Queues, ledger: _Ledger, part: Part) -> None:
    """Start a workflow, and repeat the start until its outcome is known."""
    while True:
        start = None
        try:
            start = workflow.begin(queues.engine, lay_out(part, ""), queues.admission.admit)
            start = _after_another(queues, start, ledger)
            ledger.starts.append(start)
            workflow.send(queues.engine, start)
        except EnqueueUnknown:
            assert start is not None
            town.insist(partial(workflow.send, queues.engine, start, again=True))
        except StoreUnavailable:  # nothing was stored
            if start in ledger.starts:
                ledger.starts.remove(start)
            town.world.sleep(AGAIN_US)
            continue
        except BadInput:  # it came too late
            return
        town.known += [job.id for job in start.jobs]
        ledger.stored.append(start)
        return


def _after_another(queues: Queues, start: Start, ledger: _Ledger) -> Start:
    """Let a step of every second workflow wait for one of a workflow that was stored before."""
    number = len(ledger.starts)
    steps = [place for place, job in enumerate(start.jobs) if job.task]
    if number % 2 == 0 or not ledger.stored or not steps:
        return start
    earlier = [job.id for job in ledger.stored[number * 7 % len(ledger.stored)].jobs if job.task]
    place, jobs = steps[number * 3 % len(steps)], list(start.jobs)
    if not earlier:
        return start
    awaited = earlier[number * 5 % len(earlier)]
    options = read_options(jobs[place].opts).changed(awaits=AwaitedJobs((awaited,)))
    jobs[place] = jobs[place]._replace(opts=options.to_bytes())
    try:
        jobs = list(dependencies.placed(queues.engine, jobs, is_inside=False))
    except NotFound:  # an operator has deleted it
        return start
    ledger.awaited[jobs[place].id] = awaited
    return start._replace(jobs=jobs)


def _signal_all(queues: Queues, start: Start) -> None:
    for name in dict.fromkeys(node.signal for node in start.layout.nodes if node.signal):
        with suppress(Conflict, NotFound):
            workflow.signal(queues.engine, WorkflowView(queues.engine, start.flow), name, b"7")


def _retry(queues: Queues, start: Start) -> None:
    workflow_control.retry(queues, WorkflowView(queues.engine, start.flow))


def _ends(store: Store, start: Start) -> dict[int, End]:
    return records.ends(store, start.flow, start.layout.blocks())


def _is_over(store: Store, start: Start) -> bool:
    ends = _ends(store, start)
    return len(ends) == len(start.jobs) and all(end.is_final for end in ends.values())


def _waits(ledger: _Ledger) -> Iterator[Any]:
    """Return the jobs that wait for signals."""
    return (job for start in ledger.starts for job in start.jobs if not job.task)


# The verdict


def _judged(ledger: _Ledger, data: Data) -> dict[str, list[str]]:
    """Compare the inputs of handlers with the store after the run."""
    faults: dict[str, list[str]] = {verdict: [] for verdict in FLOW_VERDICTS}
    ran: dict[JobId, list[_Ran]] = {}
    for run in ledger.ran:
        ran.setdefault(run.job, []).append(run)
    for start in ledger.starts:
        ends, dead = _ends(data.store, start), _dead(data.store, start)
        flow = start.flow.hex()
        if not _is_over(data.store, start):
            missing = sorted(set(range(len(start.jobs))) - ends.keys())
            faults["not ended"].append(f"{flow}: {missing}")
        for step, end in ends.items():
            kept = results.read(data.store, start.jobs[step].id)
            if end.is_final and (
                kept is None or (kept.state, kept.value, kept.error) != (*_told(end),)
            ):
                faults["told apart"].append(f"{flow} {step}: {end} and {kept}")
        faults["too early"] += [
            f"{flow}: {job.id.hex()}, which waits for {ledger.awaited[job.id].hex()}"
            for job in start.jobs
            if job.id in ledger.awaited
            for run in ran.get(job.id, ())
            if not _had_succeeded(ledger, ledger.awaited[job.id], run.place)
        ]
        for step, node in enumerate(start.layout.nodes):
            needs = set(node.needs())
            if needs & dead or not needs <= ends.keys():
                continue  # what it was given may have been told of the death
            has_run = start.jobs[step].id in ran
            faults["undone wrongly"] += _undone_wrongly(start, step, ends, has_run=has_run)
            for run in ran.get(start.jobs[step].id, ()):
                told = f"{flow} {step}, given {run.given}"
                faults["too early"] += [
                    f"{told}: {need} ended as {ends[need]}"
                    for need in needs
                    if not _had_given(ledger, start, need, ends[need], run.place)
                ]
                is_told = node.unless is not None and not node.undoes
                if not is_told and _given(start, node, ends) != list(run.given):
                    faults["given wrongly"].append(f"{told}: {_given(start, node, ends)}")
    return faults


def _undone_wrongly(start: Start, step: int, ends: dict[int, End], *, has_run: bool) -> list[str]:
    """Return compensations that ran wrongly, or did not run."""
    node = start.layout.nodes[step]
    if not node.undoes:
        return []
    assert node.unless is not None
    has_failed = isinstance(evaluate(start.layout, node.unless, ends), Failure)
    is_due = has_failed and ends[node.undoes[0]].state == "done"
    is_needless = step in ends and ends[step].error.endswith("undone.")
    if (has_run and not is_due) or (is_needless and is_due):
        return [f"{start.flow.hex()} {step}: {ends[node.undoes[0]]} and {ends.get(step)}"]
    return []


def _told(end: End) -> tuple[str, str, str]:
    return end.state, end.value, end.error


def _had_given(ledger: _Ledger, start: Start, step: int, end: End, place: int) -> bool:
    """Return whether a step's handler had returned a value before a time."""
    job = start.jobs[step]
    if end.state != "done" or not job.task:
        return True
    return ledger.gave.get((job.id, end.value), MANY) < place


def _had_succeeded(ledger: _Ledger, job: JobId, place: int) -> bool:
    """Return whether the handler of a job had returned a value before a time."""
    return any(at < place for (returned, _), at in ledger.gave.items() if returned == job)


def _given(start: Start, node: Node, ends: dict[int, End]) -> list[Any]:
    """Return the expected input of a step."""
    values = [evaluate(start.layout, value, ends) for value in node.given]
    return [
        "nothing" if isinstance(value, Failure) else decode(value.encode(), Any) for value in values
    ]


def _dead(store: Store, start: Start) -> set[int]:
    """Return the steps that died, even if they succeeded later."""
    return {
        int(record.key.removesuffix("-dead"))
        for block in range(-(-len(start.jobs) // BLOCK))
        for record in records_in(store, f"flows/{start.flow.hex()}/{block}")
        if record.key.endswith("-dead")
    }
