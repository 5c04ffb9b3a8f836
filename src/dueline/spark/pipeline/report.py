"""The report: one HTML page about queues, without scripts.

Its first screen says whether anything was lost, late or unfair; charts and tables follow. Those
without data are omitted.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from operator import itemgetter
from typing import Any, Final, NamedTuple

from dueline.core.clock import SECOND_US, to_datetime
from dueline.core.durations import span_text
from dueline.jobs.audit_rules import RULES
from dueline.spark.pipeline import charts, report_week
from dueline.spark.pipeline.asking import QUESTIONS, answer_to
from dueline.spark.pipeline.queries import Derived, Duck, View, lines_of, text_of
from dueline.spark.pipeline.report_answers import ANSWERS
from dueline.spark.pipeline.report_page import Tile, code, page_of, section, table
from dueline.spark.pipeline.thresholds import MINUTE_US, OBJECTIVE

Line = Mapping[str, Any]

BINS_MAX: Final = 60
SHARDS_MAX: Final = 24
CAUSES_MAX: Final = 10
SHORT_US: Final = 10 * MINUTE_US
"""Length of a history that is shown by seconds."""

UNFAIR_US: Final = SECOND_US
"""Time by which the jobs of a tenant wait longer than those of one with as many, and is unfair."""

_WIDTHS_US: Final = [
    seconds * SECOND_US
    for seconds in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600,
                    43_200, 86_400, 172_800, 604_800)
]  # fmt: skip
_OPEN_US: Final = (1 << 63) - 1
_SHARES: Final = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
_KINDS: Final = ("done", "retried", "dead", "crashed", "other")

_BOUNDS: Final = """
    SELECT min(unix_micros(minute)) AS first_us, max(unix_micros(minute)) AS last_us,
        sum(attempts) AS attempts
    FROM gold_minute
    WHERE unix_micros(minute) >= :since_us AND unix_micros(minute) < :until_us"""
_THROUGHPUT: Final = """
    SELECT unix_micros(minute) div :width_us AS bin, sum(attempts) AS attempts, sum(done) AS done,
        sum(retried + snoozed + given_back) AS retried, sum(dead) AS dead,
        sum(crashed) AS crashed, sum(cancelled + expired + lost) AS other
    FROM gold_minute
    WHERE unix_micros(minute) >= :since_us AND unix_micros(minute) < :until_us
    GROUP BY unix_micros(minute) div :width_us"""
_STEPS: Final = """
    SELECT unix_micros(minute) div :width_us AS bin, step, sum(attempts) AS attempts
    FROM steps
    WHERE unix_micros(minute) >= :since_us AND unix_micros(minute) < :until_us
    GROUP BY unix_micros(minute) div :width_us, step"""
_BACKLOG: Final = """
    SELECT queue, shard, greatest(unix_micros(minute), :since_us) div :width_us AS bin,
        sum(came - went) AS change
    FROM flow
    WHERE unix_micros(minute) < :until_us
    GROUP BY queue, shard, greatest(unix_micros(minute), :since_us) div :width_us"""
_OVER: Final = """
    SELECT queue, unix_micros(minute) div :width_us AS bin, max(over_us) AS over_us,
        sum(attempts) AS attempts
    FROM fairness
    WHERE tenants > 1 AND unix_micros(minute) >= :since_us AND unix_micros(minute) < :until_us
    GROUP BY queue, unix_micros(minute) div :width_us"""
_OF_PERIOD: Final = """
    SELECT queue, tenant, 0 AS minute, attempts, lateness_us
    FROM gold_minute
    WHERE unix_micros(minute) >= :since_us AND unix_micros(minute) < :until_us"""
_CAUSES: Final = """
    SELECT queue, task, fingerprint, sum(jobs) AS jobs, sum(dead) AS dead,
        sum(crashed) AS crashed, max(last) AS last
    FROM failures
    WHERE unix_micros(last) >= :since_us div 60000000 * 60000000 AND unix_micros(last) < :until_us
    GROUP BY queue, task, fingerprint
    ORDER BY sum(dead) DESC, sum(crashed) DESC, queue, task, fingerprint
    LIMIT :most"""


class Span(NamedTuple):
    """The minutes of a page: from `since_us` until before `until_us`."""

    since_us: int
    until_us: int

    @classmethod
    def of(cls, since_us: int | None, until_us: int | None) -> "Span":
        """Return the minutes that a period touches; all if it is open."""
        end_us = _OPEN_US if until_us is None else -(-until_us // MINUTE_US) * MINUTE_US
        return cls((since_us or 0) // MINUTE_US * MINUTE_US, end_us)

    @property
    def is_all(self) -> bool:
        """Return whether it has no bounds."""
        return self == Span.of(None, None)


class Bins:
    """A period divided into at most BINS_MAX bins whose width is a round number.

    Args:
        first_us: Start of the period.
        end_us: Time before which it ends.
        grain_us: Minimum width.
    """

    def __init__(self, first_us: int, end_us: int, grain_us: int = MINUTE_US) -> None:
        length_us = max(end_us - first_us, 1)
        wanted_us = max(-(-length_us // BINS_MAX), grain_us)
        fitting = (width_us for width_us in _WIDTHS_US if width_us >= wanted_us)
        self.width_us = next(fitting, -(-length_us // (BINS_MAX * _WIDTHS_US[-1])) * _WIDTHS_US[-1])
        self.first = first_us // self.width_us
        self.count = (end_us - 1) // self.width_us - self.first + 1
        self.words = span_text(self.width_us)
        days = length_us / (1440 * MINUTE_US)
        clock = "%H:%M:%S" if self.width_us < MINUTE_US else "%H:%M" if days <= 1 else "%d %b"
        if 1 < days <= 4:  # noqa: PLR2004
            clock = "%d %b %H:%M"
        last = self.first + self.count - 1
        self.axis = charts.Axis(clock, self.place(self.first)["start"], self.place(last)["end"])

    def place(self, number: int) -> dict[str, int]:
        """Return the start and end of a bin by its number, in milliseconds."""
        start = number * self.width_us
        return {"start": start // 1000, "end": (start + self.width_us) // 1000}

    def label(self, number: int) -> str:
        """Return the start of a bin as text."""
        at = datetime.fromtimestamp(number * self.width_us / 1e6, UTC)
        return at.strftime("%d %b %H:%M" if self.width_us >= MINUTE_US else "%H:%M:%S")

    def numbers(self) -> range:
        """Return the numbers of all bins."""
        return range(self.first, self.first + self.count)


class About(NamedTuple):
    """What a page is about.

    Attributes:
        title: Its title.
        span: The period that was asked for.
        made_us: The time at which it is made.
        command: Options of a command that reads the same tables.
        objective: The share of starts that should be on time.
    """

    title: str
    span: Span
    made_us: int
    command: str
    objective: float = OBJECTIVE


class Report:
    """Reads tables, and writes a page about them."""

    def __init__(self, views: Mapping[str, View], about: About) -> None:
        self._views = views
        self._about = about
        self._queries = Duck()
        self._values: dict[str, Any] = about.span._asdict()
        self._grain_us = MINUTE_US

    def page(self) -> str:
        """Return the page."""
        about = self._about
        (bounds,) = self._read(_BOUNDS, "gold_minute") or [{"attempts": None}]
        made = f"Made at {_minute(about.made_us)}."
        if not bounds["attempts"]:
            nothing = "<p>No attempt in the copied history has ended.</p>"
            return page_of(about.title, made, [], [section("No data yet", nothing)])
        if bounds["last_us"] - bounds["first_us"] < SHORT_US and "bronze" in self._views:
            self._grain_us, self._views = SECOND_US, _by_seconds(self._views)
            (bounds,) = self._read(_BOUNDS, "gold_minute")
        end_us = min(bounds["last_us"] + self._grain_us, about.span.until_us)
        bins = Bins(bounds["first_us"], end_us, self._grain_us)
        self._values = {
            "since_us": bounds["first_us"], "until_us": end_us, "width_us": bins.width_us,
            "most": CAUSES_MAX,
        }  # fmt: skip
        throughput = self._read(_THROUGHPUT, "gold_minute")
        late = self._read(_STEPS, "gold_lateness", "steps")
        week = self._read(report_week.HOURS, "gold_lateness", "steps")
        hours = self._read(report_week.LOAD, "gold_minute")
        late_tenants = self._read(_OVER, "fairness")
        backlog = self._backlog(bins)
        causes = self._causes()
        tiles = [
            self._lost(), self._late(late), self._fair(), _failed(throughput, causes),
            _done(throughput, bins), _waiting(backlog, bins), *self._answers(),
        ]  # fmt: skip
        ends = (_stamp(at_us, self._grain_us) for at_us in (bounds["first_us"], end_us))
        head = f"{' to '.join(ends)}, {bounds['attempts']:,} attempts. {made}"
        each = f"by {bins.words}"
        parts = [
            section(f"Backlog by shard, {each}", _heat(backlog, bins), is_wide=True),
            section(f"Start latency, {each}", _percentiles(late, bins)),
            section(f"Ended attempts, {each}", _ended(throughput, bins)),
            section(f"Fairness between tenants, {each}", _over(late_tenants, bins)),
            section("Top failures", self._failures(causes), is_wide=True),
            section("Load by hour of the week", report_week.load(hours)),
            section("Start latency by hour of the week", report_week.latency(week)),
            section("Distribution of start latency", _histogram(late)),
            section(
                "Distribution of run time", _histogram(self._read(_STEPS, "gold_run", "steps"))
            ),
        ]
        if about.span.is_all:
            parts += [
                section("Starts on time", _slo(self._all("slo"))),
                section("Suspicious shards", _suspicious(self._all("suspicious")), is_wide=True),
            ]
        return page_of(about.title, head, tiles, parts)

    def _read(self, sql: str, name: str, view: str = "") -> list[dict[str, Any]]:
        """Run a text that reads one table; nothing if the table does not exist."""
        if name not in self._views:
            return []
        views = {view or name: self._views[name], **self._views}
        return lines_of(self._queries.run(sql, views, self._values))

    def _all(self, name: str) -> list[dict[str, Any]]:
        return self._read("SELECT * FROM some", name, "some")

    def _causes(self) -> list[dict[str, Any]]:
        """Return the top failures; without their minutes only of a page about all."""
        if "failures" in self._views or self._about.span.is_all:
            name = "failures" if "failures" in self._views else "poison"
            return self._read(_CAUSES, name, "failures")
        return []

    def _lost(self) -> Tile:
        findings = self._all("findings")
        if "findings" not in self._views:
            words = f"run dueline pipeline audit {self._about.command}"
            return Tile("Lost jobs", "not audited", words, None)
        counts = Counter(RULES[finding["rule"]].verdict for finding in findings)
        others = sum(counts.values()) - counts["lost"]
        words = f"{others:,} other findings of the audit" if others else "the audit found nothing"
        return Tile("Lost jobs", f"{counts['lost']:,}", words, not counts)

    def _late(self, late: Sequence[Line]) -> Tile:
        steps = _sums(late)
        if not steps:
            return Tile("Start latency", "unknown", "nothing was started", None)
        shown = ", ".join(f"{name} {step_text(percentile(steps, share))}"
                          for name, share in _SHARES[:2])  # fmt: skip
        share, is_good = "", None
        slo = self._all("slo") if self._about.span.is_all else []
        if slo:
            kept = sum(line["in_time"] for line in slo) / sum(line["started"] for line in slo)
            share, is_good = f"; {kept:.1%} on time", kept >= self._about.objective
        value = f"p99 {step_text(percentile(steps, 0.99))}"
        return Tile("Start latency", value, shown + share, is_good)

    def _fair(self) -> Tile:
        """Say by how much the jobs of a tenant waited longer than those of one with as many."""
        views = {**self._views, "sums": Derived(_OF_PERIOD)}
        queues = [
            line
            for line in lines_of(self._queries.run(text_of("fairness"), views, self._values))
            if line["tenants"] > 1
        ]
        if not queues:
            return Tile("Fairness", "one tenant", "no queue had attempts of two", None)
        worst = max(queues, key=itemgetter("over_us"))
        is_even = worst["over_us"] < UNFAIR_US
        who = "no tenant" if is_even else f"{worst['tenant'] or 'no tenant'} in {worst['queue']}"
        value = "even" if is_even else f"{worst['over_us'] / 1e6:,.1f} s"
        words = f"{who} waited {'' if is_even else 'so much '}longer than one with as many jobs"
        return Tile("Fairness", value, words, is_even)

    def _answers(self) -> list[Tile]:
        """Return the first answer to each question of `pipeline ask` as a tile."""
        if "silver" not in self._views:
            return []
        silver = self._views["silver"]
        period = {name: self._values[name] for name in ("since_us", "until_us")}
        return [
            tile(answer_to(QUESTIONS[name], self._queries, silver, **period))
            for name, tile in ANSWERS.items()
        ]

    def _backlog(self, bins: Bins) -> dict[str, list[int]]:
        """Return the number of jobs at the end of each bin, by shard."""
        changes: dict[str, Counter[int]] = defaultdict(Counter)
        for line in self._read(_BACKLOG, "flow"):
            changes[f"{line['queue']}/{line['shard']}"][line["bin"]] += line["change"]
        counts = {}
        for name, change in sorted(changes.items()):
            held, at_hand = 0, []
            for number in bins.numbers():
                held += change[number]
                at_hand.append(max(held, 0))
            counts[name] = at_hand
        return counts

    def _failures(self, causes: Sequence[Line]) -> str:
        rows = [
            (
                escape(f"{cause['queue']}: {cause['task']}"),
                escape(cause["fingerprint"]),
                f"{cause['dead']:,}",
                f"{cause['crashed']:,}",
                _minute(cause["last"]),
                self._redrive(cause) if cause["dead"] else "",
            )
            for cause in causes
        ]
        heads = ("queue: task", "error", "dead", "crashed", "last", "to retry its dead jobs")
        return table(heads, rows, texts=(0, 1, 5))

    def _redrive(self, cause: Line) -> str:
        """Return the command that retries the dead jobs of a cause."""
        return code(
            f"dueline pipeline redrive {self._about.command} --queue {_word(cause['queue'])}"
            f" --task {_word(cause['task'])} --error {_word(cause['fingerprint'])}"
        )


def _by_seconds(views: Mapping[str, View]) -> dict[str, View]:
    """Return the tables of a short history with seconds in place of minutes, from its rows."""
    names = ("gold_minute", "gold_lateness", "gold_run", "flow")
    texts = {name: text_of(name).replace("'minute'", "'second'") for name in names}
    texts |= {
        "changes": "SELECT *, 1 AS sign FROM silver",
        "rows": "SELECT *, 1 AS sign FROM bronze",
        "runs": text_of("runs"),
        "sums": "SELECT * FROM gold_minute",
        "fairness": text_of("fairness"),
    }
    return dict(views) | {name: Derived(sql) for name, sql in texts.items()}


def percentile(steps: Mapping[int, int], share: float) -> int:
    """Return the step of a histogram below which a share of the values is."""
    wanted = share * sum(steps.values())
    seen = 0
    for step in sorted(steps):
        seen += steps[step]
        if seen >= wanted:
            return step
    return 0


def step_text(step: int) -> str:
    """Return the upper bound of a step as text."""
    if not step:
        return "0"
    for unit, size in (("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1000)):
        if 2**step >= size:
            return f"< {2**step / size:.0f} {unit}"
    return f"< {2**step} us"


def _sums(lines: Sequence[Line]) -> Counter[int]:
    sums: Counter[int] = Counter()
    for line in lines:
        sums[line["step"]] += line["attempts"]
    return sums


def _failed(lines: Sequence[Line], causes: Sequence[Line]) -> Tile:
    dead, crashed, attempts = (sum(line[name] for line in lines)
                               for name in ("dead", "crashed", "attempts"))  # fmt: skip
    words = f"{crashed:,} crashes; {dead / attempts:.2%} of attempts ended dead"
    if causes and causes[0]["dead"]:
        words += f"; most: {causes[0]['fingerprint'][:60]}"
    return Tile("Dead-letter jobs", f"{dead:,}", words, not dead and not crashed)


def _done(lines: Sequence[Line], bins: Bins) -> Tile:
    done = sum(line["done"] for line in lines)
    seconds = bins.count * bins.width_us / 1e6
    peak = max(line["attempts"] for line in lines) / bins.width_us * 1e6
    words = f"{_rate(done / seconds)}; peak {_rate(peak, ' attempts')}"
    return Tile("Done", f"{done:,}", words, None)


def _rate(per_second: float, things: str = "") -> str:
    """Return a rate per second, minute or hour: the first that is at least 1."""
    rates = (("second", per_second), ("minute", per_second * 60), ("hour", per_second * 3600))
    unit, rate = next((rate for rate in rates if rate[1] >= 1), rates[-1])
    return f"{rate:,.1f}{things} per {unit}"


def _waiting(backlog: Mapping[str, Sequence[int]], bins: Bins) -> Tile:
    sums = [sum(point) for point in zip(*backlog.values(), strict=True)] or [0]
    most = max(sums)
    at = bins.label(bins.first + sums.index(most))
    return Tile("Backlog at the end", f"{sums[-1]:,}", f"most {most:,}, {at}", None)


def _heat(backlog: Mapping[str, Sequence[int]], bins: Bins) -> str:
    top = max((max(sequence) for sequence in backlog.values()), default=0)
    if not top:
        return ""
    most = sorted(backlog, key=lambda name: max(backlog[name]), reverse=True)[:SHARDS_MAX]
    names = [name for name in backlog if name in most]
    rows = [
        {**bins.place(number), "name": name, "n": n,
         "words": f"{name}, {bins.label(number)}: {n:,} jobs"}
        for name in names
        for number, n in zip(bins.numbers(), backlog[name], strict=True)
    ]  # fmt: skip
    note = f'<p class="note">The darkest cell is {top:,} jobs at the end of a bin.</p>'
    return note + "".join(
        f'<div class="{kind}">{charts.heat(rows, names, bins.axis, width=width)}</div>'
        for kind, width in (("wide", charts.WIDE), ("narrow", charts.NARROW))
    )


def _percentiles(lines: Sequence[Line], bins: Bins) -> str:
    cells: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        cells[line["bin"]].append(line)
    rows = []
    for number, of_bin in sorted(cells.items()):
        steps = _sums(of_bin)
        for name, share in _SHARES:
            step = percentile(steps, share)
            words = f"{bins.label(number)}: {name} {step_text(step)}"
            rows.append({**bins.place(number), "kind": name, "n": max(2**step, 128) / 1e6,
                         "words": words})  # fmt: skip
    kinds = [name for name, _ in _SHARES]
    if not rows:
        return ""
    return charts.lines(rows, kinds, bins.axis, width=charts.NARROW)


def _ended(lines: Sequence[Line], bins: Bins) -> str:
    rows = [
        {**bins.place(line["bin"]), "kind": kind, "n": line[kind],
         "words": f"{bins.label(line['bin'])}: {line[kind]:,} {kind}"}
        for line in lines
        for kind in _KINDS
        if line[kind]
    ]  # fmt: skip
    kinds = [kind for kind in _KINDS if any(row["kind"] == kind for row in rows)]
    return charts.stacked(rows, kinds, bins.axis, width=charts.NARROW) if rows else ""


def _over(lines: Sequence[Line], bins: Bins) -> str:
    most = Counter[str]()
    for line in lines:
        most[line["queue"]] += line["attempts"]
    kinds = [name for name, _ in most.most_common(len(charts.SERIES))]
    rows = [
        {**bins.place(line["bin"]), "kind": line["queue"], "n": max(line["over_us"], 128) / 1e6,
         "words": f"{line['queue']}, {bins.label(line['bin'])}: {line['over_us'] / 1e6:,.3f} s"}
        for line in lines
        if line["queue"] in kinds
    ]  # fmt: skip
    if not rows:
        return ""
    words = "How much longer a tenant's jobs waited than those of a tenant with as many or more."
    note = f'<p class="note">{words}</p>'
    return charts.lines(rows, kinds, bins.axis, width=charts.NARROW) + note


def _histogram(lines: Sequence[Line]) -> str:
    steps = _sums(lines)
    if not steps:
        return ""
    labels = {step: step_text(step) for step in range(min(steps), max(steps) + 1)}
    rows = [
        {"label": label, "n": steps[step], "words": f"{label}: {steps[step]:,} attempts"}
        for step, label in labels.items()
    ]
    return charts.histogram(rows, list(labels.values()), width=charts.NARROW)


def _slo(lines: Sequence[Line]) -> str:
    rows = [
        (escape(line["queue"]), f"{line['share']:.2%}",
         *("" if line[f"burn_{name}"] is None else f"{line[f'burn_{name}']:.2f}"
           for name in ("5m", "1h", "6h")))
        for line in lines
    ]  # fmt: skip
    note = '<p class="note">Burn: error-budget burn rate (1 = on budget).</p>'
    made = table(("queue", "on time", "burn 5m", "1h", "6h"), rows, texts=(0,))
    return made + note if rows else ""


def _suspicious(lines: Sequence[Line]) -> str:
    rows = [
        (escape(f"{line['queue']}/{line['shard']}"), escape(line["evidence"]),
         code(line["command"]))
        for line in lines
    ]  # fmt: skip
    return table(("shard", "evidence", "to look at it"), rows, texts=(0, 1, 2))


def _word(text: str) -> str:
    """Return a text as one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _minute(instant_us: int) -> str:
    return _stamp(instant_us, MINUTE_US)


def _stamp(instant_us: int, grain_us: int) -> str:
    seconds = "" if grain_us == MINUTE_US else ":%S"
    return to_datetime(instant_us).strftime(f"%Y-%m-%d %H:%M{seconds} UTC")
