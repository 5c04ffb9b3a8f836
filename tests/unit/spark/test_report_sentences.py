"""Every figure and sentence of the report, against a recount in plain Python (P6)."""

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake")

from tests.harness.spark.lakes import Lake
from tests.harness.spark.report_oracle import Said, read
from tests.harness.spark.tables import BORN, SECOND, Line, attempt, made

MINUTE = 60 * SECOND
ERRORS = ("TimeoutError: bank 17 is silent", "KeyError: 'id'", "ValueError: it's <b>& 3", "")


def history(seed: int, length_us: int) -> list[Line]:
    """Make attempts with crashes, bursts and a starved tenant, in two queues of several shards."""
    random = Random(seed)
    lines: list[Line] = []
    for number in range(260):
        queue = random.choice(["mail", "mail", "bills"])
        tenant = random.choice(["acme", "acme", "acme", "zeta", ""])
        is_burst = number % 3 == 0
        due = BORN + (length_us // 2 if is_burst else random.randrange(length_us))
        slow = 40 * SECOND if tenant == "zeta" and queue == "mail" else 2 * SECOND
        claimed = due + random.randrange(slow)
        job, shard = f"{seed}-{number}", random.randrange(3)
        common: Line = {
            "queue": queue, "tenant": tenant, "shard": shard, "due": due,
            "task": random.choice(["send", "pay"]), "enqueued": due - random.randrange(5 * SECOND),
        }  # fmt: skip
        for fence in range(1, 4):
            outcome = random.choice(
                ["done"] * 5 + ["retried", "crashed", "dead", "snoozed", "cancelled", "expired"]
            )
            if fence == 3 and outcome in ("retried", "snoozed"):
                outcome = "dead"
            ended = claimed + random.randrange(1, 3 * SECOND)
            started: int | None = min(ended, claimed + random.randrange(500))
            if outcome in ("crashed", "expired"):
                started = None
            failed = outcome in ("retried", "dead", "crashed")
            error = random.choice(ERRORS[: 3 + (outcome == "retried")]) if failed else ""
            times = {"claimed": claimed, "started": started, "ended": ended, "at": ended}
            lines.append(attempt(job, fence, outcome, error=error, **times, **common))
            if outcome not in ("retried", "crashed", "snoozed"):
                break
            claimed = ended + random.randrange(SECOND)
    lines += [
        attempt(f"waits {n}", 0, "enqueued", worker="", claimed=None, started=None, ended=BORN,
                at=BORN, due=BORN, queue="bills", shard=n % 3)
        for n in range(7)
    ]  # fmt: skip
    return lines


@pytest.mark.parametrize(
    ("seed", "length", "width"),
    [(1, 40 * MINUTE, MINUTE), (2, 50 * MINUTE, MINUTE), (3, 4 * MINUTE, 5 * SECOND),
     (4, 20 * 24 * 60 * MINUTE, 12 * 60 * MINUTE)],
)  # fmt: skip
def test_all_that_the_page_says_is_recounted(
    tmp_path: Path, seed: int, length: int, width: int
) -> None:
    lines = history(seed, length)
    lake = Lake(tmp_path / "lake")
    for start in range(0, len(lines), 150):  # in batches
        lake.add(lines[start : start + 150])
        lake.run()
    store: Any = SimpleNamespace(url="memory://")
    page = read(made(tmp_path / "lake", store).report("Mail"))
    wanted = dict(Said(lines, width, f"--store memory:// --out {tmp_path / 'lake'}").page())
    chart = wanted.pop("Start latency (chart)")
    assert page.pop("Start latency") == wanted.pop("Start latency") | chart
    assert page.keys() == wanted.keys()
    for name, texts in wanted.items():
        assert page[name] == texts, name
