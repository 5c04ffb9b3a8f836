"""What a process loads: each that starts pays for it."""

import subprocess
import sys

import pytest

SLOW = {"asyncio", "ssl", "concurrent.futures", "multiprocessing.connection", "subprocess", "rich"}
WORKING = {
    "dueline.api.launch",
    "dueline.monitor.monitor",
    "dueline.worker.worker",
    "dueline.api.embedded_worker",
}
STORES = {"apsw", "dueline.stores.memory.store", "dueline.stores.cassandra.url"}


def loaded(program: str) -> set[str]:
    """Name what a process has loaded at the end of a program."""
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(ended.stdout.splitlines()[-1].split())


def test_an_application_loads_no_worker_and_no_store_before_it_needs_one() -> None:
    found = loaded("import dueline; dueline.Dueline('sqlite:///jobs.db').queue('mail')")
    assert not found & (SLOW | WORKING | STORES)
    assert "dueline.jobs.queue" in found


def test_of_the_stores_only_the_one_that_is_named_is_loaded() -> None:
    found = loaded("import dueline; dueline.Dueline('memory://').queues")
    assert not found & (SLOW | WORKING | (STORES - {"dueline.stores.memory.store"}))
    assert "dueline.stores.memory.store" in found


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_worker_loads_an_event_loop_only_for_coroutines(*, asynchronous: bool) -> None:
    found = loaded(
        "import dueline; app = dueline.Dueline('memory://')\n"
        f"@app.task()\n{'async ' * asynchronous}def nothing() -> None: pass\n"
        "nothing.enqueue(); app.run_worker(burst=True)"
    )
    assert ("asyncio" in found) is asynchronous


def test_a_command_loads_no_other_one() -> None:
    found = loaded("from dueline.cli import run; run(['jobs', '--help'])")
    assert [name for name in found if name.startswith("dueline.cli.")]
    assert not found & (
        {"asyncio", "rich"}
        | WORKING
        | {"dueline.cli.commands.bench", "dueline.cli.commands.doctor"}
    )


COUNTED = "import gc; seen = []; gc.callbacks.append(lambda *a: seen.append(a)); import dueline"
TWO_ROUNDS = 4  # starts and ends; one may come before the package begins, and one after it


def test_nothing_is_looked_through_for_garbage_while_the_package_is_loaded() -> None:
    found = loaded(f"{COUNTED}\nimport sys; sys.modules[str(len(seen) <= {TWO_ROUNDS})] = sys")
    assert "True" in found


@pytest.mark.parametrize("word", ["enable", "disable"])
def test_the_collector_is_left_as_it_was(word: str) -> None:
    program = f"import gc; gc.{word}(); import dueline, sys; sys.modules[str(gc.isenabled())] = sys"
    assert str(word == "enable") in loaded(program)


def test_the_end_of_a_command_does_not_look_for_garbage() -> None:
    program = (
        "import atexit, gc, sys; from dueline.cli import main; sys.argv = ['dueline', 'version']\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0)); main()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ended.stdout.splitlines()[-1] == b"True"
