"""The application of the README, with a task that marks where a measurement begins and ends.

`jobs.py` is the README's first block of Python, written into the folder of the worker.
"""

from importlib import import_module

from benchmarks.marks import write_mark

_jobs = import_module("jobs")
app = _jobs.app
task, arguments = _jobs.greet, ("Ann",)


@app.task(name="bench.mark")  # type: ignore[untyped-decorator]  # a module of the run
def mark(path: str) -> None:
    """Write down the time, and the time of the processor that this process has used."""
    write_mark(path)
