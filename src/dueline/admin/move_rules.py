"""Rules of `dueline move --audit`: what must hold of one job, by what both stores say of it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from dueline.jobs.audit_rules import ENDED, FINAL, RULES, Rule
from dueline.jobs.history import BESIDE, REFUSED

OLD, NEW = 0, 1
"""The stores."""

Kind = Literal["event", "row", "result", "moved"]

MOVED: Final[Mapping[str, Rule]] = {
    **{
        name: RULES[name]
        for name in ("gone", "after its end", "another end", "one fence", "another result")
    },
    "in both": Rule("duplicate", "has a row in both stores"),
    "left": Rule("incomplete", "is still in the old store"),
    "ended before": Rule("illegitimate", "ended in the old store, and has a row in the new one"),
    "ends differ": Rule("finished twice", "has another end in the new store than in the old one"),
    "no result": Rule("incomplete", "has a result in the old store only"),
    "no history": Rule("incomplete", "has events in the history of the old store only"),
    "once": Rule("illegitimate", "was started again, and may be started only once"),
    "order": Rule("order", "was started before a job of its order key ended in the old store"),
    "no place": Rule("order", "has lost its place in the order of its key"),
    "key": Rule("duplicate", "holds a unique key that another job holds"),
}
"""The rules, by name; those of the audit of one history are its own."""


_CALLED: Final = ("crashed", "retried", "snoozed")
"""Outcomes of attempts that called a handler and did not end the job."""


class Fact(NamedTuple):
    """What one store says of a job.

    Attributes:
      kind: An event of the history, a row, a kept result, or a portion that names the job.
      store: OLD or NEW.
      run: When the job was enqueued; 0 if that is not known.
      outcome: Of an event or result; of a row, its state.
      at_us: The end of an attempt, or the time of another event or a result.
    """

    kind: Kind
    store: int
    queue: str = ""
    run: int = 0
    fence: int = 0
    outcome: str = ""
    at_us: int = 0
    claimed_us: int = 0
    started_us: int = 0
    worker: str = ""
    digest: str = ""
    order_key: str = ""

    @property
    def is_claim(self) -> bool:
        """Whether it is an event of an attempt."""
        return self.kind == "event" and bool(self.worker)

    @property
    def is_of_dead(self) -> bool:
        """Whether another worker wrote it, since the attempt's own one had died."""
        return self.outcome == "crashed" or (
            self.outcome in ("dead", "lost") and not self.started_us
        )


class Known(NamedTuple):
    """What is known of the stores.

    Attributes:
      once: Queues that deliver at most once.
      with_history: Queues of which the new store has the history since the move.
    """

    once: frozenset[str] = frozenset()
    with_history: frozenset[str] = frozenset()


class Judged(NamedTuple):
    """One run of a job that the old store had.

    Attributes:
      place: Where it is: a store with the end or the state; "gone" for nowhere.
      rules: The names of the rules that do not hold.
      has_moved: A portion names it.
      old_end_us, new_start_us: Its last attempt in the old store and its first one in the new one;
        0 for none.
      order_key: The order key, as far as an event or row has it; empty for none.
    """

    run: int
    queue: str
    place: str
    rules: Sequence[str]
    has_moved: bool
    old_end_us: int
    new_start_us: int
    order_key: str


def judge(facts: Sequence[Fact], known: Known, opened_us: int) -> Iterator[Judged]:
    """Judge each run of a job that the old store had.

    Args:
      facts: All that both stores say of the job.
      known: What is known of the stores.
      opened_us: No job was claimed in the new store before.
    """
    for run, said in _runs(facts):
        if any(fact.store == OLD or fact.kind == "moved" for fact in said):
            yield _judge_run(run, said, known, opened_us)


def _runs(facts: Sequence[Fact]) -> Iterator[tuple[int, Sequence[Fact]]]:
    """Yield the facts of each run; a result belongs to the last one that began before it."""
    runs: dict[int, list[Fact]] = defaultdict(list)
    for fact in facts:
        if fact.run:
            runs[fact.run].append(fact)
    begins = sorted(runs) or [0]
    of_old = [run for run in begins if any(fact.store == OLD for fact in runs[run])]
    for fact in facts:
        if fact.kind == "moved":
            runs[of_old[-1] if of_old else begins[0]].append(fact)
        elif not fact.run:
            before = [run for run in begins if run <= fact.at_us]
            runs[before[-1] if before else begins[0]].append(fact)
    yield from sorted(runs.items())


def _judge_run(run: int, facts: Sequence[Fact], known: Known, opened_us: int) -> Judged:
    rows = [fact for fact in facts if fact.kind == "row"]
    results = [fact for fact in facts if fact.kind == "result"]
    events = [fact for fact in facts if fact.kind == "event"]
    has_moved = any(fact.kind == "moved" for fact in facts)
    queue = next((fact.queue for fact in facts if fact.queue), "")
    rules = {
        *_of_claims(events, is_once=queue in known.once),
        *_of_results(events, results),
        *_of_rows(rows, events, results),
    }
    before = {_same(event) for event in events if event.store == OLD}
    lasting = {event for event in before if event.outcome not in BESIDE}  # others may come later
    after = [event for event in events if event.store == NEW and _same(event) not in before]
    copied = {_same(event) for event in events if event.store == NEW}
    if has_moved and queue in known.with_history and lasting - copied:
        rules.add("no history")
    place = _place(rows, events, results)
    if place == "gone":
        rules.add("gone")
    claims = [event for event in after if event.is_claim and event.claimed_us >= opened_us]
    return Judged(
        run, queue, place, sorted(rules), has_moved,
        max((event.at_us for event in events if event.store == OLD and event.is_claim), default=0),
        min((event.claimed_us for event in claims), default=0),
        max(fact.order_key for fact in facts),
    )  # fmt: skip


def _same(event: Fact) -> Fact:
    return event._replace(store=OLD)


def _of_claims(events: Sequence[Fact], *, is_once: bool) -> Iterator[str]:
    """Yield the rules that the attempts of a run break, in whichever store they were."""
    claims: dict[int, list[Fact]] = defaultdict(list)
    for event in events:
        if event.is_claim:
            claims[event.fence].append(event)
    for claim in claims.values():
        if len({(event.worker, event.claimed_us) for event in claim}) > 1:
            yield "one fence"
        own = {
            (event.outcome, event.at_us, event.digest) for event in claim if not event.is_of_dead
        }
        if len(own) > 1:
            yield "another end"
    ends = [event.fence for event in events if event.outcome in ENDED]
    refused = {event.fence for event in events if event.outcome == REFUSED}
    if ends and max(claims.keys() | refused, default=0) > min(ends):
        yield "after its end"
    called = [event.fence for event in events if event.outcome in _CALLED and event.is_claim]
    if is_once and called:
        later = (event for fence in claims if fence > min(called) for event in claims[fence])
        if any(event.started_us for event in later):
            yield "once"


def _of_results(events: Sequence[Fact], results: Sequence[Fact]) -> Iterator[str]:
    """Yield the rules that kept results break."""
    old = {fact.at_us: fact for fact in results if fact.store == OLD}
    new = {fact.at_us: fact for fact in results if fact.store == NEW}
    for at_us, fact in old.items():
        if fact.outcome not in ENDED:
            continue
        if (other := new.get(at_us)) is None:
            yield "ends differ" if new else "no result"
        elif (other.outcome, other.digest) != (fact.outcome, fact.digest):
            yield "ends differ"
    for fact in results:
        for event in events:
            is_its = event.at_us == fact.at_us and event.outcome in FINAL
            if is_its and event.outcome != fact.outcome:
                yield "another end"
            elif is_its and event.digest and event.digest != fact.digest:
                yield "another result"


def _of_rows(
    rows: Sequence[Fact], events: Sequence[Fact], results: Sequence[Fact]
) -> Iterator[str]:
    stores = {row.store for row in rows}
    if len(stores) > 1 or (OLD in stores and any(result.store == NEW for result in results)):
        yield "in both"
    elif OLD in stores:
        yield "left"
    if NEW in stores and _ends(events, results, OLD):
        yield "ended before"


def _ends(events: Sequence[Fact], results: Sequence[Fact], store: int) -> list[str]:
    """Return how a run ended for good, as a store says."""
    facts = (*events, *results)
    return [fact.outcome for fact in facts if fact.store == store and fact.outcome in ENDED]


def _place(rows: Sequence[Fact], events: Sequence[Fact], results: Sequence[Fact]) -> str:
    """Return where a run is."""
    for store, name in (OLD, "old"), (NEW, "new"):
        if ended := _ends(events, results, store):
            return f"{ended[0]} in the {name} store"
    for row in sorted(rows, reverse=True, key=lambda row: row.store):
        return f"{row.outcome} in the {'new' if row.store else 'old'} store"
    if any(fact.outcome == "dead" for fact in (*events, *results)):
        return "deleted after its death"
    return "gone"
