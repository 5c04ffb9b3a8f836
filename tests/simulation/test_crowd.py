"""Many lives: the same on any number of processes, told once, taken up again."""

from collections.abc import Sequence

import pytest

from simulation import __main__ as command
from simulation import crowd
from simulation.crowd import Sum, lead
from simulation.life import Life, live
from simulation.report import JUDGED, Progress, summary

SEEDS = range(900, 906)


def test_lives_are_the_same_on_any_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "CHUNK", 3)
    one, two = list(lead(SEEDS, workers=1)), list(lead(SEEDS, workers=2))
    assert [some.digests for some in one] == [some.digests for some in two]
    assert [list(some.digests) for some in two] == [list(SEEDS[:3]), list(SEEDS[3:])]
    assert [some.counts for some in one] == [some.counts for some in two]


def bad(seed: int, tape: Sequence[int] | None = None, **_terms: object) -> Life:
    """Lead a life without accidents, and find fault with it."""
    life = live(seed, [] if tape is None else tape)
    return Life(**{name: getattr(life, name) for name in Life.__slots__} | {"faults": FAULTS})


FAULTS = {"lost": ["It is gone."]}


def test_a_seed_that_fails_is_told_once_with_its_story(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def of(seed: int, tape: Sequence[int] | None = None) -> Life:
        return bad(seed, tape) if seed == SEEDS[1] else live(seed, [])

    monkeypatch.setattr(crowd, "live", of)
    monkeypatch.setattr(command, "live", of)
    monkeypatch.setattr(command, "shrunk", lambda life: life)
    monkeypatch.setattr(command, "regressions", list)
    assert command.many(SEEDS[:3], 0, 1, digests=False) == 1
    said = capsys.readouterr().out
    assert said.count(f"seed {SEEDS[1]}: lost") == 1
    assert said.count(f"seed {SEEDS[1]} at commit") == 1
    assert "It is gone." in said
    assert "1 lost" in said
    assert said.rstrip().endswith(f"1 FAILED: {SEEDS[1]}")


def test_what_was_left_is_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "regressions", list)
    assert command.many(SEEDS[:4], 0, 1, digests=True) == 0
    whole = digests_in(capsys.readouterr().out)
    assert command.many(SEEDS[:4], 2, 1, digests=True) == 0
    assert digests_in(capsys.readouterr().out) == whole[2:]
    assert len(whole) == 4


def digests_in(said: str) -> list[str]:
    return [line for line in said.splitlines() if len(line.split()) == 2 and line[0].isdigit()]


def test_progress_is_told_once_a_minute_and_says_where_to_go_on() -> None:
    now_s = 0.0
    said: list[str] = []
    progress = Progress(100, said.append, lambda: now_s)
    total = Sum()
    for _ in range(28):
        now_s += 7.0
        total.lives += 20
        total.steps += 70_000
        progress.tell(total)
    assert len(said) == 3
    assert "continue with --from 280" in said[0]
    assert "63 s: 180 runs, 630000 steps, 10000 a second, 0 failed" in said[0]


def test_every_verdict_is_counted_in_the_end() -> None:
    told = summary(Sum(), 1.0)
    assert all(f"0 {verdict}" in told for verdict in JUDGED)
    assert told.endswith("no faults")
