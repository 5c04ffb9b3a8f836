"""Handlers that hang, fail, vanish or wait to be let go.

Each writes down when it starts and when it ends, a line each, into one file of the world.
"""

import asyncio
import json
import os
import time
from pathlib import Path

from dueline import BatchOptions, Call, Context, Dueline, Retry
from dueline.tasks.hooks import RunEvent, SettleEvent

FOLDER_VARIABLE = "DUELINE_FAILURES_FOLDER"
LEASE_VARIABLE = "DUELINE_FAILURES_LEASE_S"
POLL_S = 0.01
TIMEOUT_S = 0.3
KILL_AFTER_S = 0.6
DEAF_TIMEOUT_S, DEAF_KILL_AFTER_S = 3.0, 4.0
"""Long enough for a handler to come to where it hears nothing."""

HOARD: list[bytes] = []

FOLDER = Path(os.environ.get(FOLDER_VARIABLE, "."))

app = Dueline(f"sqlite:///{FOLDER}/queue.db")
app.queue("default", lease=float(os.environ.get(LEASE_VARIABLE, "30")))


def note(what: str, tag: str) -> None:
    """Append a line to the world's notes, with one write."""
    line = json.dumps([what, tag, os.getpid(), time.monotonic()]).encode() + b"\n"
    descriptor = os.open(FOLDER / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line)
    os.close(descriptor)


@app.on("before_run")
def hear_of_run(event: RunEvent) -> None:
    """Note who runs what."""
    if event.task == "fine":
        note("before", event.job_id)


@app.on("done")
def hear_of_end(event: SettleEvent) -> None:
    """Note who settles what."""
    if event.task == "fine":
        note("settled", event.job_id)


@app.task(name="fine")
def fine(tag: str) -> int:
    """Just end."""
    note("start", tag)
    note("end", tag)
    return os.getpid()


@app.task(name="brief")
def brief(tag: str, seconds: float) -> None:
    """Take a while."""
    note("start", tag)
    time.sleep(seconds)
    note("end", tag)


@app.task(name="hold")
def hold(tag: str) -> int:
    """Wait to be let go."""
    note("start", tag)
    while not (FOLDER / f"go-{tag}").exists():
        time.sleep(POLL_S)
    note("end", tag)
    return os.getpid()


@app.task(name="hold_all", batch=BatchOptions(size=3, within=0.5))
def hold_all(calls: list[Call[str]]) -> list[int]:
    """Wait until one of them is let go."""
    for call in calls:
        note("start", call.value)
    while not any((FOLDER / f"go-{call.value}").exists() for call in calls):
        time.sleep(POLL_S)
    return [len(calls)] * len(calls)


@app.task(name="linger", batch=BatchOptions(size=2, within=600))
def linger(calls: list[Call[str]]) -> None:
    """Be two."""
    for call in calls:
        note("start", call.value)


@app.task(
    name="spin_all",
    batch=BatchOptions(size=2, within=0.5),
    kill_after=KILL_AFTER_S,
    retry=Retry(attempts=1),
)
def spin_all(calls: list[Call[str]]) -> None:
    """Keep the interpreter busy for ever, and be killed for it."""
    while True:
        pass


@app.task(name="hold_async")
async def hold_async(tag: str) -> int:
    """Wait to be let go, on the event loop."""
    note("start", tag)
    while not (FOLDER / f"go-{tag}").exists():  # noqa: ASYNC110  (another process makes it)
        await asyncio.sleep(POLL_S)
    note("end", tag)
    return os.getpid()


@app.task(name="listen")
def listen(context: Context, tag: str) -> int:
    """Wait to be let go, or until nobody wants the result any more."""
    note("start", tag)
    while not (FOLDER / f"go-{tag}").exists():
        context.check_cancelled()
        time.sleep(POLL_S)
    note("end", tag)
    return os.getpid()


@app.task(name="spin")
def spin(tag: str) -> None:
    """Keep the interpreter busy for ever."""
    note("start", tag)
    while True:
        pass


@app.task(name="vanish")
def remove_empty_queues(tag: str) -> None:
    """Take the process along."""
    note("start", tag)
    os._exit(3)


@app.task(name="fail", retry=Retry(attempts=2, base=0.01, cap=0.01))
def fail(tag: str) -> None:
    """Raise."""
    note("start", tag)
    raise ValueError(f"{tag} is no good")


@app.task(name="overdue", timeout=TIMEOUT_S, retry=Retry(attempts=1))
def overdue(tag: str) -> None:
    """Take longer than allowed."""
    note("start", tag)
    while True:
        time.sleep(POLL_S)


@app.task(name="overdue_async", timeout=TIMEOUT_S, retry=Retry(attempts=1))
async def overdue_async(tag: str) -> None:
    """Take longer than allowed, in one wait."""
    note("start", tag)
    await asyncio.sleep(60)


@app.task(name="endless", kill_after=KILL_AFTER_S, retry=Retry(attempts=2, base=0.0, cap=0.0))
def endless(tag: str) -> None:
    """Keep the interpreter busy for ever, and be killed for it."""
    note("start", tag)
    while True:
        pass


@app.task(
    name="deaf", timeout=DEAF_TIMEOUT_S, kill_after=DEAF_KILL_AFTER_S, retry=Retry(attempts=1)
)
def deaf(tag: str) -> None:
    """Wait in C, where no exception arrives."""
    note("start", tag)
    time.sleep(3600)


@app.task(name="grow")
def grow(tag: str, mib: int) -> int:
    """Keep memory for good."""
    note("start", tag)
    HOARD.append(b"x" * (mib << 20))
    note("end", tag)
    return os.getpid()


@app.task(name="doze")
async def doze(tag: str) -> None:
    """Wait in one await, and clean up."""
    note("start", tag)
    try:
        await asyncio.sleep(3600)
    finally:
        note("cleaned", tag)


@app.task(name="climb", retry=Retry(attempts=3, base=0.0, cap=0.0))
def climb(context: Context, tag: str) -> float:
    """Go on where the last attempt stopped: fail after one step, hold after two."""
    done = context.last_progress.done if context.last_progress else 0
    note(f"from {done:g}", tag)
    context.progress(done + 1, 10, note="climbing")
    if done == 0:
        raise ValueError("one step is enough")
    while not (FOLDER / f"go-{tag}").exists():
        time.sleep(POLL_S)
    return done
