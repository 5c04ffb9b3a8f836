"""The count of what makes the source long."""

import ast

from tools.budget import bodies_elsewhere, empty_names, has_tuple_tricks, kinds_of_store


def test_questions_about_the_kind_of_a_store_are_counted() -> None:
    asked = kinds_of_store(
        ast.parse(
            "if store.transactional or store.scope == 'network': pass\n"
            "if isinstance(store, ListsLanes | None): pass\n"
            "if isinstance(store, str) or store.scope == 'file': pass\n"
        ),
        {"ListsLanes"},
    )
    assert sorted(asked) == [
        "questions about an optional ability",
        "questions about the distance of the store",
        "questions about transactions",
    ]


def test_names_that_say_nothing_are_counted() -> None:
    assert (
        empty_names(
            ast.parse(
                "for one in a: [one for one in b]\nfor job in c: some = job\ndef f(one): pass"
            )
        )
        == 4
    )


def test_a_module_that_makes_tuples_unusually_names_its_benchmark() -> None:
    uses = ("from dueline.core.tuples import field\n", "make = tuple.__new__\n")
    for use in uses:
        assert has_tuple_tricks(ast.parse(f'"""Jobs."""\n{use}'))
        named = f'"""Jobs. Hot path: the benchmark `default`."""\n{use}'
        assert not has_tuple_tricks(ast.parse(named))
    assert not has_tuple_tricks(ast.parse("from operator import attrgetter\n"))


def test_tests_that_only_call_their_body_are_counted() -> None:
    source = (
        "from tests.harness import claims as cases, bodies\n"
        "def test_a(): cases.a()\n"
        "def test_b():\n    b = 1\n    bodies.b(b)\n"
        "def test_c(): check()\n"
    )
    assert bodies_elsewhere(source) == 1
