"""The plugin, in a pytest of its own."""

import pytest

pytest_plugins = ["pytester"]

APP = """
from dueline import Dueline, DurableContext

app = Dueline("sqlite:////nowhere/at/all.db")
ran = []

@app.durable
def nap(ctx: DurableContext) -> str:
    ctx.sleep(3600)
    return "awake"

@app.task(name="greet")
def greet(name: str) -> None:
    ran.append(name)
"""

TESTS = """
import pytest
from shop import greet, ran

def test_one(dueline_app, dueline_clock):
    greet.using(after=3600).enqueue("ann")
    dueline_app.assert_enqueued(greet, "ann", after=3600)
    dueline_clock.advance(hours=1)
    assert dueline_app.drain().succeeded == 1
    assert ran == ["ann"]
    greet.enqueue("left over")

def test_another_starts_anew(dueline_app):
    dueline_app.assert_not_enqueued(greet)

@pytest.mark.dueline(inline=True)
def test_inline():
    greet.enqueue("bob")
    assert ran[-1] == "bob"

def test_a_function(dueline_functions):
    from shop import nap
    assert dueline_functions.run(nap.enqueue()) == "awake"

@pytest.mark.dueline
def test_marked():
    greet.enqueue("cy")
    assert ran[-1] == "bob"
"""

PLUGIN = "-p dueline.testing.plugin"


@pytest.fixture
def folder(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(shop=APP)
    pytester.syspathinsert()
    return pytester


@pytest.mark.long
def test_the_configuration_names_the_application(folder: pytest.Pytester) -> None:
    # A5
    folder.makeini(f"[pytest]\ndueline_app = shop:app\naddopts = {PLUGIN} --strict-markers\n")
    folder.makepyfile(TESTS)
    folder.runpytest_subprocess("-q").assert_outcomes(passed=5)


@pytest.mark.long
def test_a_fixture_may_name_it_instead(folder: pytest.Pytester) -> None:
    folder.makeini(f"[pytest]\naddopts = {PLUGIN}\n")
    folder.makeconftest(
        "import pytest\n@pytest.fixture\ndef dueline_target():\n"
        "    from shop import app\n    return app\n"
    )
    folder.makepyfile(TESTS)
    folder.runpytest_subprocess("-q").assert_outcomes(passed=5)


@pytest.mark.long
def test_without_a_name_it_says_what_to_write(folder: pytest.Pytester) -> None:
    folder.makeini(f"[pytest]\naddopts = {PLUGIN}\n")
    folder.makepyfile(TESTS)
    result = folder.runpytest_subprocess("-q", "-k", "one")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*set dueline_app = "MODULE:ATTR"*'])
