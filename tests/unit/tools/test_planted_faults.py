"""Planted faults: which changes are made to a module, and which tests are run on them."""

import ast

import pytest

from tools.planted_faults.__main__ import EXPLAINED, explained, read_sources, sample
from tools.planted_faults.faults import faults_of
from tools.planted_faults.selection import choose
from tools.planted_faults.suite import Measured, files, functions_of


def changes(code: str, file: str = "jobs/a.py") -> list[str]:
    """Return the places in a function and what the faults make of them."""
    faults = faults_of(file, code.encode())
    for fault in faults:
        ast.parse(fault.applied_to(code.encode()))
    return [fault.key.partition(": ")[2] for fault in faults]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("return a < b", ["a < b -> a <= b"]),
        ("return a in b", ["a in b -> a not in b"]),
        ("return (a) is not b", ["(a) is not b -> (a) is b"]),
        ("return a and b", ["a and b -> a or b"]),
        ("return not a", ["not a -> bool(a)"]),
        ("return min(a, b)", ["min(a, b) -> max(a, b)"]),
        ("return a[1:]", ["a[1:] -> a[1 + 1:]"]),
        ("return a - 1", ["a - 1 -> a - 0"]),
        ("return a_us + b", ["a_us + b -> a_us - b"]),
        ("return f(a_us, b_us)", ["f(a_us, b_us) -> f(b_us, a_us)"]),
        ("return True", ["return True -> return False"]),
        ("return [b for b in a if b]", ["b -> True"]),
        ("a.clear()", ["a.clear() -> pass"]),
        ("a.b = 3", ["a.b = 3 -> pass"]),
        ("a += 3", ["a += 3 -> pass"]),
        ("del a[b]", ["del a[b] -> pass"]),
        ("if a:\n        return 3", ["a -> not (a)"]),
        ("with a.lock:\n        b = 3", ["a.lock -> __import__('contextlib').nullcontext()"]),
        ("for b in a:\n        continue", ["continue -> break"]),
        ("raise ValueError(a + 1)", []),
        ("log.info(a + 1)", []),
    ],
)
def test_a_usual_mistake_is_planted(code: str, expected: list[str]) -> None:
    assert changes(f"def f(a, b):\n    {code}\n") == expected


def test_defaults_are_changed() -> None:
    code = "class A:\n    a: int = 0\n    b: bool = True\n\ndef f(c=1, *, d=None): ...\n"
    assert changes(code) == ["0 -> 1", "True -> False", "1 -> 2"]


def test_statements_of_sql_are_changed() -> None:
    code = b'READ = ("SELECT a FROM t WHERE b = %s"\n    " AND c <= %s ORDER BY a FOR UPDATE")\n'
    statements = [fault.applied_to(code) for fault in faults_of("stores/postgres/a.py", code)]
    assert statements == [
        code.replace(b" FOR UPDATE", b""),
        code.replace(b"<=", b"<"),
        code.replace(b"BY a", b"BY a DESC"),
        code.replace(b"c <= %s", b"(c <= %s OR TRUE)"),
        code.replace(b"b = %s", b"(b = %s OR TRUE)"),
    ]
    assert faults_of("jobs/a.py", code) == []


def test_files_of_sql_are_changed_but_for_comments() -> None:
    code = b"-- b = c AND d\nSELECT a FROM t\nWHERE b = %s\n    AND c <= %s\nFOR UPDATE\n"
    statements = [fault.applied_to(code) for fault in faults_of("stores/postgres/sql/a.sql", code)]
    assert statements == [
        code.replace(b"\nFOR UPDATE", b""),
        code.replace(b"<=", b"<"),
        code.replace(b" AND c <= %s\n", b" AND (c <= %s OR TRUE)\n"),
        code.replace(b"\nWHERE b = %s\n   ", b" WHERE (b = %s OR TRUE)"),
    ]


def test_the_name_of_a_fault_stays_when_lines_move() -> None:
    code = b"def f(a):\n    return a < 1, a < 1\n"
    names = [fault.key for fault in faults_of("jobs/a.py", code)]
    assert names == ["jobs/a.py f: a < 1 -> a <= 1", "jobs/a.py f: a < 1 -> a <= 1 (#2)"]
    assert [fault.key for fault in faults_of("jobs/a.py", b"\n\n" + code)] == names


def test_the_tests_that_run_a_function_are_chosen_the_nearest_first() -> None:
    (fault,) = faults_of("jobs/completion.py", b"def finish(a):\n    return a < 1\n")
    runs = frozenset({"jobs/completion.py finish"})
    tests = {
        "tests/stores/sqlite/test_laws.py::test_a": Measured(1, runs, is_opaque=False),
        "tests/unit/jobs/test_bulk.py::test_a": Measured(2, runs, is_opaque=False),
        "tests/unit/jobs/test_bulk.py::test_b": Measured(1, frozenset(), is_opaque=False),
        "tests/unit/jobs/test_races.py::test_a": Measured(1, runs, is_opaque=False),
        "tests/unit/jobs/test_races.py::test_b": Measured(9, frozenset(), is_opaque=True),
        "tests/unit/jobs/test_completion.py::test_a": Measured(9, runs, is_opaque=False),
        "tests/unit/worker/test_loop.py::test_a": Measured(1, frozenset(), is_opaque=True),
    }
    assert choose(fault, tests) == [
        "tests/unit/jobs/test_completion.py::test_a",
        "tests/unit/jobs/test_bulk.py::test_a",
        "tests/unit/jobs/test_races.py::test_a",
        "tests/unit/jobs/test_races.py::test_b",
        "tests/stores/sqlite/test_laws.py::test_a",
    ]
    (constant,) = faults_of("jobs/queue.py", b"LEAST = max(A, B)\n")
    assert set(choose(constant, tests)) == set(choose(fault, tests))


def test_the_suite_holds_each_store_but_cassandra() -> None:
    folders = {path.rpartition("/")[0] for path in files()}
    assert {"tests/unit/jobs", "tests/stores", "tests/stores/postgres"} <= folders
    assert not {"tests/stores/cassandra", "tests/unit/spark"} & folders


def test_functions_are_found_by_the_lines_of_their_bodies() -> None:
    code = "class A:\n    def f(self):\n        def g():\n            return 1\n        return g\n"
    assert list(functions_of(code)) == [("A.f", 3, 5), ("A.f.g", 4, 4)]


def test_an_explained_fault_has_a_reason() -> None:
    assert explained("# Why.\n\na.py f: a -> b\n    It is not used.\n") == {
        "a.py f: a -> b": "It is not used."
    }
    assert explained(EXPLAINED.read_text(encoding="utf-8"))


@pytest.mark.long
def test_a_sample_depends_on_its_seed_only() -> None:
    faults = [fault for file, source in read_sources().items() for fault in faults_of(file, source)]
    first = sample(faults, ["jobs", "limits"], 5, "a")
    assert first == sample(faults, ["jobs", "limits"], 5, "a")
    assert first != sample(faults, ["jobs", "limits"], 5, "b")
    assert [fault.file.partition("/")[0] for fault in first[:4]] == ["jobs", "limits"] * 2
