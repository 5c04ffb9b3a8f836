"""Processes that handlers start: what the worker sets for itself does not reach them."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.harness.programs import WAIT_S, Program, wait_for

TASKS = """
import asyncio, os, signal, subprocess, sys, time
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
from dueline import Dueline, Retry

app = Dueline(URL)
once = Retry(attempts=1)

def nap(method: str) -> None:
    open(f"{method}.began", "w").close()
    time.sleep(600)

def end_of(pid: int, number: int) -> int:
    os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

@app.task(name="process", retry=once)
def process(method: str, number: int) -> int | None:
    child = mp.get_context(method).Process(target=time.sleep, args=(600,))
    child.start()
    os.kill(child.pid, number)
    child.join(20)
    code = child.exitcode
    child.kill()
    return code

@app.task(name="daemon", retry=once)
def daemon(method: str, number: int) -> int | None:
    child = mp.get_context(method).Process(target=time.sleep, args=(600,), daemon=True)
    child.start()
    os.kill(child.pid, number)
    child.join(20)
    return child.exitcode

@app.task(name="executor", retry=once)
def executor(method: str, number: int) -> int | None:
    with ProcessPoolExecutor(1, mp.get_context(method)) as pool:
        pool.submit(int, 1).result(20)
        (child,) = pool._processes.values()
        os.kill(child.pid, number)
        child.join(20)
        child.kill()
    return child.exitcode  # the pool's own thread may have been the one that waited for it

@app.task(name="leave_pool", retry=once)
def leave_pool(method: str, number: int) -> int | None:
    with mp.get_context(method).Pool(1) as pool:
        pool.apply_async(nap, (method,))
        while not os.path.exists(f"{method}.began"):
            time.sleep(0.01)
        (child,) = pool._pool
    child.join(0)
    return child.exitcode

@app.task(name="program", retry=once)
def program(method: str, number: int) -> int:
    child = subprocess.Popen(["sleep", "600"], preexec_fn=int if method == "fork" else None)
    child.send_signal(number)
    try:
        return child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
        return 0

@app.task(name="program_of_a_coroutine", retry=once)
async def program_of_a_coroutine(method: str, number: int) -> int:
    child = await asyncio.create_subprocess_exec("sleep", "600")
    child.send_signal(number)
    try:
        return await asyncio.wait_for(child.wait(), 20)
    except TimeoutError:
        child.kill()
        return 0

@app.task(name="fork", retry=once)
def fork(method: str, number: int) -> int:
    pid = os.fork()
    if pid == 0:
        time.sleep(20)
        os._exit(0)
    return end_of(pid, number)

@app.task(name="read_input", retry=once)
def read_input() -> str:
    return sys.stdin.read() + subprocess.run(
        ["cat"], stdin=sys.stdin, capture_output=True, text=True, check=True).stdout

@app.task(name="orphan", retry=once)
def orphan() -> str:
    script = "sleep 0.1 >&- & echo $!"
    pid = int(subprocess.check_output(["sh", "-c", script]))
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return "reaped"
        time.sleep(0.02)
    return "zombie"

@app.task(name="codes", retry=once)
def codes() -> list[int]:
    children = [subprocess.Popen(["sh", "-c", "exit 7"]) for _ in range(20)]
    time.sleep(0.2)
    return [child.wait() for child in children]

@app.task(name="hold", retry=once)
def hold() -> int:
    open("began", "w").close()
    time.sleep(1)
    return os.getpid()

@app.task(name="crash", retry=once)
def crash() -> None:
    if os.fork() == 0:
        time.sleep(30)
    os._exit(3)

@app.task(name="overdue", retry=once, kill_after=0.5)
def overdue() -> None:
    os.fork()
    time.sleep(30)
"""

TERM, INT, HUP, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL
WAYS = [
    *product(
        ("process", "executor", "leave_pool"),
        ("fork", "spawn"),
        (TERM,),
    ),
    *product(("process", "leave_pool"), ("forkserver",), (TERM,)),
    *product(("daemon",), ("fork",), (TERM,)),
    *product(("program",), ("fork", "exec"), (TERM, INT, HUP, KILL)),
    *product(("program_of_a_coroutine",), ("exec",), (TERM, INT, KILL)),
    *product(("fork",), ("fork",), (TERM, HUP, KILL)),
]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path, TASKS)
    yield program
    program.close()


@pytest.mark.parametrize("processes", [0, 1])
def test_a_signal_ends_what_a_handler_started_at_once(jobs: Program, processes: int) -> None:
    started = {way: getattr(jobs.module, way[0]).enqueue(*way[1:]) for way in WAYS}
    worker = jobs.work("--burst", "--processes", str(processes), "-c", "1")
    assert worker.wait(100) == 0
    ends = {way: job.result(0) for way, job in started.items() if job.status == "done"}
    assert ends == {way: -way[2] for way in WAYS}


def test_standard_input_of_a_child_process_is_empty(jobs: Program) -> None:
    job = jobs.module.read_input.enqueue()
    jobs.work("--burst", "--processes", "1").wait(WAIT_S)
    assert (job.status, job.result(0)) == ("done", "")


def test_the_end_of_a_child_process_is_noticed_while_what_it_forked_goes_on(jobs: Program) -> None:
    crashed, overdue = jobs.module.crash.enqueue(), jobs.module.overdue.enqueue()
    fine = jobs.module.codes.enqueue()
    jobs.work("--burst", "--processes", "1", "-c", "1").wait(25)
    assert (crashed.status, overdue.status) == ("dead", "dead")
    assert fine.status == "done"


@pytest.fixture
def process_one() -> list[str]:
    """Return a command that runs another one as process 1."""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    is_here = shutil.which("unshare") is not None
    if (
        not is_here
        or subprocess.run([*command, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("this system lets nobody create a namespace of processes")
    return command


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_worker_that_is_process_one_reaps_what_lost_its_parent(
    jobs: Program, process_one: list[str], processes: str
) -> None:
    orphan, codes = jobs.module.orphan.enqueue(), jobs.module.codes.enqueue()
    command = [*process_one, *jobs.command("--burst", "--processes", processes)]
    done = subprocess.run(
        command, cwd=jobs.folder, capture_output=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert orphan.result(0) == "reaped"
    assert codes.result(0) == [7] * 20


@pytest.mark.parametrize(("number", "code"), [(TERM, 143), (INT, 130), (HUP, 129), (KILL, 137)])
def test_a_worker_that_is_process_one_drains(
    jobs: Program, process_one: list[str], number: signal.Signals, code: int
) -> None:
    job = jobs.module.hold.enqueue()
    worker = subprocess.Popen([*process_one, *jobs.command()], cwd=jobs.folder)
    wait_for((jobs.folder / "began").exists, "the handler runs")
    first = child_of(worker.pid)
    os.kill(child_of(first) if number == KILL else first, number)
    assert worker.wait(WAIT_S) == code
    assert (job.status == "done") == (number != KILL)


def child_of(pid: int) -> int:
    """Return the only child of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii"))
