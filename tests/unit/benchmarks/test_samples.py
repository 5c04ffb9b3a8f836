"""Medians, ratios and bars of benchmarks."""

from benchmarks.compare import Goal, goals, judged, table
from benchmarks.measure import bars
from benchmarks.rows import Bench, Limit, Row, Sizes
from benchmarks.samples import Samples, Spread, is_less_better


def samples(**rates: list[float]) -> Samples:
    """Make samples of a rate by side."""
    found = Samples()
    for side, values in rates.items():
        for value in values:
            found.add(side, {"per_s": value, "p50_ms": 10 / value})
    return found


def row(*bars_: tuple[str, str], limits: tuple[Limit, ...] = ()) -> Row:
    """Make a row that is judged only."""
    return Row("one", "one", lambda _: {}, bars_, limits)


def test_ratios_compare_neighbours() -> None:
    found = samples(ours=[10, 100, 30], raw=[20, 100, 40])
    assert found.ratio("ours", "raw", "per_s") == Spread(0.75, 0.5, 1.0)
    assert found.spread("ours", "per_s") == Spread(30, 10, 100)
    assert found.ratio("ours", "huey", "per_s") is None


def test_less_is_better_by_the_name_of_the_measure() -> None:
    assert all(map(is_less_better, ("p50_ms", "cpu_us", "rss_mb", "early", "most_behind")))
    assert not is_less_better("per_s")


def test_a_bar_is_nine_tenths_of_what_was_recorded() -> None:
    known = {
        "ratios": {"raw": {"per_s": {"median": 0.5}}},
        "sides": {"ours": {"p50_ms": {"median": 0.9}}},
    }
    judged_row = row(("raw", "per_s"), ("", "p50_ms"))
    good = bars(judged_row, samples(ours=[46], raw=[100]), known, is_comparable=True)
    assert [(bar["is_met"], bar.get("at_least"), bar.get("at_most")) for bar in good] == [
        (True, 0.45, None),
        (True, None, 1.0),
    ]
    bad = bars(judged_row, samples(ours=[9], raw=[100]), known, is_comparable=True)
    assert [bar["is_met"] for bar in bad] == [False, False]


def test_times_of_another_class_of_machine_are_not_compared() -> None:
    known = {"sides": {"ours": {"p50_ms": {"median": 0.1}}}}
    assert bars(row(("", "p50_ms")), samples(ours=[1]), known, is_comparable=False) == []


def test_a_limit_holds_without_a_record() -> None:
    limits = (Limit("per_s", 0.5, to="raw"), Limit("p50_ms", 1.0))
    found = bars(row(limits=limits), samples(ours=[40], raw=[100]), {}, is_comparable=False)
    assert [bar["is_met"] for bar in found] == [False, True]


def test_a_goal_is_held_against_the_best_of_its_peers() -> None:
    goal = Goal("drain", "one", "per_s", ["raw", "huey"], at_least=2)
    found = samples(ours=[100], raw=[80], huey=[20])
    line = judged(goal, found)
    assert line is not None
    assert (line["to"], line["median"], line["is_met"]) == ("raw", 1.25, False)
    assert "| **no** |" in list(table([line]))[-1]
    assert judged(Goal("drain", "one", "per_s", ["base"], at_least=2), found) is None


def test_each_goal_and_bar_names_a_row_and_sides_that_exist() -> None:
    names = {one.name for one in Bench(Sizes()).rows()}
    on_sqlite = [one for one in goals() if not one.row.startswith("cassandra")]
    assert {one.row for one in on_sqlite} <= names
    assert all((one.at_least is None) != (one.at_most is None) for one in goals())
