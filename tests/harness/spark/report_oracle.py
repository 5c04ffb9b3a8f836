"""Every figure and sentence of the report in plain Python; shares no code with the pipeline.

Only for histories that are divided into bins of a given width, and a page about all of them.
"""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from html import unescape
from math import ceil, floor

from tests.harness.spark import oracle
from tests.harness.spark.asking_oracle import recounted
from tests.harness.spark.tables import SECOND, Line

HOUR = 3600 * SECOND
Page = Mapping[str, set[str]]
"""The sentences of tiles and sections, by their heading without the width of bins."""


def read(page: str) -> dict[str, set[str]]:
    """Return what a page says: of tiles value, words and colour; of sections their texts."""
    sections: dict[str, set[str]] = {}
    for kind, tile in re.findall(r'<div class="tile( good| bad|)">(.*?)</div>', page):
        name, *said = (unescape(part) for part in re.findall(r">([^<]*)</", tile))
        sections[name] = {*said, kind.strip()}
    for section in re.findall(r"<section.*?</section>", page, re.DOTALL):
        heading = re.search(r"<h2>(.*?)</h2>", section)
        assert heading
        texts = [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", section)]
        texts += re.findall(r"<title>(.*?)</title>", section)
        texts += re.findall(r'<p class="note">(.*?)</p>', section)
        name = heading[1].partition(", by ")[0]
        sections[name] = sections.get(name, set()) | set(map(_without_quotes, map(unescape, texts)))
    (head,) = re.findall(r'</h1><p class="note">(.*?)</p>', page)
    return sections | {"head": {head.partition(" Made at")[0]}}


def _without_quotes(text: str) -> str:
    """Return a command as the shell's words with spaces between."""
    return " ".join(shlex.split(text)) if text.startswith("dueline ") else text


class Said:
    """What the page of a history must say.

    Args:
        rows: The rows of bronze.
        width_us: Width of a bin; minutes, or seconds for a history of less than ten minutes.
        command: Options of the commands that it shows.
    """

    def __init__(self, rows: Sequence[Line], width_us: int, command: str) -> None:
        self.tables = oracle.tables(rows)
        self.attempts = self.tables["silver"]
        self.rows = rows
        self.width = width_us
        self.command = command
        self.grain = SECOND if width_us < oracle.MINUTE else oracle.MINUTE
        ends = [row["ended"] for row in self.attempts]
        self.first = min(ends) // self.grain * self.grain
        self.end = max(ends) // self.grain * self.grain + self.grain
        self.bins = range(self.first // self.width, (self.end - 1) // self.width + 1)

    def page(self) -> Page:
        """Return all of it; sections without data are left out."""
        sections: dict[str, set[str]] = {
            "head": {(f"{self.stamp(self.first)} to {self.stamp(self.end)}, "
                     f"{len(self.attempts):,} attempts.")},
            **self.tiles(),
            **self.charts(),
        }  # fmt: skip
        return {name: texts for name, texts in sections.items() if texts}

    def stamp(self, at: int) -> str:
        """Write a timestamp of the head."""
        form = "%Y-%m-%d %H:%M:%S UTC" if self.grain == SECOND else "%Y-%m-%d %H:%M UTC"
        return datetime.fromtimestamp(at // SECOND, UTC).strftime(form)

    def label(self, number: int) -> str:
        """Write the start of a bin."""
        form = "%H:%M:%S" if self.width < oracle.MINUTE else "%d %b %H:%M"
        return datetime.fromtimestamp(number * self.width // SECOND, UTC).strftime(form)

    def by_bin(self, rows: Iterable[Line]) -> dict[int, list[Line]]:
        """Group attempts by the bin in which they ended."""
        bins: dict[int, list[Line]] = defaultdict(list)
        for row in rows:
            bins[row["ended"] // self.width].append(row)
        return bins

    # --- tiles

    def tiles(self) -> dict[str, set[str]]:
        """Return the texts of tiles."""
        late = latenesses(self.attempts)
        starts = self.tables["slo"]
        on_time = Fraction(
            int(sum(r["in_time"] for r in starts)), int(sum(r["started"] for r in starts))
        )
        ends = Counter(row["outcome"] for row in self.attempts)
        dead, crashed, total = ends["dead"], ends["crashed"], len(self.attempts)
        causes = self.causes()
        words = f"{crashed:,} crashes; {dead / total:.2%} of attempts ended dead"
        if causes and causes[0]["dead"]:
            words += f"; most: {causes[0]['fingerprint'][:60]}"
        seconds = len(self.bins) * self.width / SECOND
        peak = max(map(len, self.by_bin(self.attempts).values())) / self.width * SECOND
        sums = [sum(held) for held in zip(*self.backlog().values(), strict=True)]
        most = max(sums)
        return {
            "Lost jobs": {"not audited", f"run dueline pipeline audit {self.command}", ""},
            "Start latency": {
                f"p99 {bound(late, 99)}",
                f"p50 {bound(late, 50)}, p90 {bound(late, 90)}; {float(on_time):.1%} on time",
                "good" if on_time >= Fraction(99, 100) else "bad",
            },
            "Fairness": self.fairness(),
            "Dead-letter jobs": {f"{dead:,}", words, "bad" if dead or crashed else "good"},
            "Done": {f"{ends['done']:,}",
                     f"{rate(ends['done'] / seconds)}; peak {rate(peak, ' attempts')}", ""},
            "Backlog at the end": {f"{sums[-1]:,}",
                                   f"most {most:,}, {self.label(self.bins[sums.index(most)])}", ""},
            **self.answers(),
        }  # fmt: skip

    def fairness(self) -> set[str]:
        """Compare the tenants of each queue over the whole history."""
        worst = (0, "", "")
        shared = False
        for queue in {row["queue"] for row in self.attempts}:
            tenants: dict[str, list[int]] = defaultdict(list)
            for row in self.attempts:
                if row["queue"] == queue:
                    tenants[row["tenant"]].append(row["lateness_us"] or 0)
            means = {
                name: (len(us), floor(Fraction(sum(us), len(us)))) for name, us in tenants.items()
            }
            shared = shared or len(means) > 1
            for name, (count, mean) in means.items():
                over = mean - min(us for other, us in means.values() if other >= count)
                if len(means) > 1 and over > worst[0]:
                    worst = over, name, queue
        if not shared:
            return {"one tenant", "no queue had attempts of two", ""}
        over, name, queue = worst
        if over < SECOND:
            return {"even", "no tenant waited longer than one with as many jobs", "good"}
        words = f"{name or 'no tenant'} in {queue} waited so much longer than one with as many jobs"
        return {f"{over / SECOND:,.1f} s", words, "bad"}

    def answers(self) -> dict[str, set[str]]:
        """Answer the three questions."""
        said = recounted(self.rows)

        def worst(name: str, *order: str) -> Line:
            return max(said[name], key=lambda line: tuple(line[key] for key in order))

        tiles = {
            "Failing task": {"none", "no attempt failed", "good"},
            "Waiting tenant": {"unknown", "nothing was started", ""},
            "Handler time": {"unknown", "no handler ended", ""},
        }
        if said["failures"]:
            line = worst("failures", "failed", "dead")
            words = f"{line['failed']:,} of {line['attempts']:,} attempts in {line['queue']} failed"
            tiles["Failing task"] = {
                line["task"],
                words + (f"; most: {line['error'][:60]}" if line["error"] else ""),
                "",
            }
        if said["waiting"]:
            line = worst("waiting", "mean_s", "started")
            tiles["Waiting tenant"] = {
                f"{line['tenant'] or 'no tenant'} in {line['queue']}",
                (f"{span(line['mean_s'])} on average, {span(line['longest_s'])} at most;"
                f" {line['share']:.0%} of the queue's waiting"), "",
            }  # fmt: skip
        if said["costs"]:
            line = worst("costs", "run_s", "attempts")
            failed = sum(cost["failed_s"] for cost in said["costs"])
            tiles["Handler time"] = {
                span(sum(cost["run_s"] for cost in said["costs"])),
                (f"{span(failed)} of it failed; most: {line['task']} for"
                f" {line['tenant'] or 'no tenant'}, {span(line['run_s'])}"), "",
            }  # fmt: skip
        return tiles

    # --- sections

    def charts(self) -> dict[str, set[str]]:
        """Return the texts of sections."""
        bins = self.by_bin(self.attempts)
        backlog = self.backlog()
        top = max(map(max, backlog.values()))
        kinds = {"done": ("done",), "retried": ("retried", "snoozed", "given_back"),
                 "dead": ("dead",), "crashed": ("crashed",),
                 "other": ("cancelled", "expired", "lost")}  # fmt: skip
        ended = {
            f"{self.label(number)}: {count:,} {kind}"
            for number, rows in bins.items()
            for kind, outcomes in kinds.items()
            if (count := sum(row["outcome"] in outcomes for row in rows))
        }
        latency = {
            f"{self.label(number)}: p{share} {bound(late, share)}"
            for number, rows in bins.items()
            if (late := latenesses(rows))
            for share in (50, 90, 99)
        }
        cells = {
            f"{name}, {self.label(number)}: {held:,} jobs"
            for name, sequence in backlog.items()
            for number, held in zip(self.bins, sequence, strict=True)
        }
        return {
            "Backlog by shard": cells | {f"The darkest cell is {top:,} jobs at the end of a bin."}
            if top else set(),
            "Start latency (chart)": latency,
            "Ended attempts": ended,
            "Fairness between tenants": self.fair_bins(),
            "Top failures": self.failures(),
            "Load by hour of the week": self.week("attempts"),
            "Start latency by hour of the week": self.week("ms at p99"),
            "Distribution of start latency": histogram(latenesses(self.attempts)),
            "Distribution of run time": histogram(
                [max(0, r["run_us"]) for r in self.attempts if r["run_us"] is not None]
            ),
            "Starts on time": self.starts(),
            "Suspicious shards": {
                text
                for line in self.tables["suspicious"]
                for text in (f"{line['queue']}/{line['shard']}", line["evidence"], line["command"])
            },
        }  # fmt: skip

    def backlog(self) -> dict[str, list[int]]:
        """Count what is ready and has not ended, at the end of each bin."""
        runs: dict[tuple[str, str, int], list[Line]] = defaultdict(list)
        for row in self.rows:
            runs[row["queue"], row["job_id"], row["enqueued"]].append(row)
        counts: dict[str, Counter[int]] = defaultdict(Counter)
        for (queue, *_), run in runs.items():
            name = f"{queue}/{min(row['shard'] for row in run)}"
            ready = min(max(row["due"], row["enqueued"]) for row in run)
            gone = max((r["ended"] for r in run if r["outcome"] in oracle.ENDS), default=None)
            came = ready if gone is None else min(ready, gone)
            for number in self.bins:
                until = min((number + 1) * self.width, self.end)
                counts[name][number] += (came < until) - (gone is not None and gone < until)
        return {name: [max(0, counts[name][n]) for n in self.bins] for name in sorted(counts)}

    def fair_bins(self) -> set[str]:
        """Return the worst grain of each bin and queue that had two tenants."""
        cells: dict[tuple[str, int], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for row in self.attempts:
            cells[row["queue"], row["ended"] // self.grain][row["tenant"]].append(
                row["lateness_us"] or 0
            )
        worst: dict[tuple[str, int], int] = {}
        for (queue, place), tenants in cells.items():
            means = [(len(us), floor(Fraction(sum(us), len(us)))) for us in tenants.values()]
            if len(means) > 1:
                over = max(mean - min(us for other, us in means if other >= n) for n, mean in means)
                bin_of = queue, place * self.grain // self.width
                worst[bin_of] = max(over, worst.get(bin_of, 0))
        words = (
            "How much longer a tenant's jobs waited than those of a tenant with as many or more."
        )
        texts = {f"{queue}, {self.label(number)}: {over / SECOND:,.3f} s"
                 for (queue, number), over in worst.items()}  # fmt: skip
        return texts | {words} if texts else set()

    def causes(self) -> list[Line]:
        """Return the causes of failures, the worst first."""
        order = "queue", "task", "fingerprint"
        return sorted(
            self.tables["poison"],
            key=lambda line: (-line["dead"], -line["crashed"], *(line[name] for name in order)),
        )[:10]

    def failures(self) -> set[str]:
        """Return the cells of the table of failures."""
        texts: set[str] = set()
        for line in self.causes():
            command = (
                f"dueline pipeline redrive {self.command} --queue {line['queue']}"
                f" --task {line['task']} --error {line['fingerprint']}"
            )
            at = datetime.fromtimestamp(line["last"] // SECOND, UTC).strftime("%Y-%m-%d %H:%M UTC")
            texts |= {
                f"{line['queue']}: {line['task']}", line["fingerprint"], f"{line['dead']:,}",
                f"{line['crashed']:,}", at, command if line["dead"] else "",
            }  # fmt: skip
        return texts

    def week(self, unit: str) -> set[str]:
        """Return the cells of an hour of the week."""
        hours: dict[int, list[Line]] = defaultdict(list)
        for row in self.attempts:
            if unit == "attempts" or row["lateness_us"] is not None:
                hours[row["ended"] // HOUR].append(row)
        places: dict[str, list[int]] = defaultdict(list)
        for hour in range(min(hours), max(hours) + 1):
            places[datetime.fromtimestamp(hour * 3600, UTC).strftime("%a %H:00")].append(hour)
        cells = {}
        for place, hours_of in places.items():
            rows = [row for hour in hours_of for row in hours.get(hour, ())]
            if rows and unit == "attempts":
                cells[place] = len(rows) / len(hours_of)
            elif rows:
                cells[place] = 2 ** rank(latenesses(rows), 99).bit_length() / 1000
        if len(cells) < 2:
            return set()
        texts = {f"{place}: {value:,.0f} {unit}" for place, value in cells.items()}
        return texts | {f"The darkest cell is {max(cells.values()):,.0f} {unit}. UTC."}

    def starts(self) -> set[str]:
        """Return the cells of the table of starts on time."""
        texts = {"Burn: error-budget burn rate (1 = on budget)."}
        for line in self.tables["slo"]:
            burns = (line[f"burn_{name}"] for name in ("5m", "1h", "6h"))
            texts |= {line["queue"], f"{line['share']:.2%}"}
            texts |= {"" if burn is None else f"{burn:.2f}" for burn in burns}
        return texts


def latenesses(rows: Iterable[Line]) -> list[int]:
    """Return start latencies of at least 0, sorted."""
    return sorted(max(0, row["lateness_us"]) for row in rows if row["lateness_us"] is not None)


def rank(values: Sequence[int], percent: int) -> int:
    """Return a percentile by nearest rank, of sorted values."""
    return values[ceil(Fraction(percent * len(values), 100)) - 1]


def bound(values: Sequence[int], percent: int) -> str:
    """Write the power of two above a percentile."""
    return power(rank(values, percent).bit_length())


def power(step: int) -> str:
    """Write a power of two in microseconds."""
    if step == 0:
        return "0"
    for unit, us in (("h", HOUR), ("min", 60 * SECOND), ("s", SECOND), ("ms", 1000)):
        if 2**step >= us:
            return f"< {2**step / us:.0f} {unit}"
    return f"< {2**step} us"


def histogram(values: Sequence[int]) -> set[str]:
    """Write the bars of a histogram, empty ones too."""
    steps = Counter(value.bit_length() for value in values)
    return {f"{power(n)}: {steps[n]:,} attempts" for n in range(min(steps), max(steps) + 1)}


def rate(per_second: float, things: str = "") -> str:
    """Write a rate."""
    for unit, seconds in (("second", 1), ("minute", 60), ("hour", 3600)):
        if per_second * seconds >= 1 or unit == "hour":
            return f"{per_second * seconds:,.1f}{things} per {unit}"
    raise AssertionError


def span(seconds: float) -> str:
    """Write a duration."""
    if abs(seconds) < 60:
        return f"{seconds:.1f} s"
    left, words = round(seconds), ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        words += f"{count}{unit}" if count else ""
    return words
