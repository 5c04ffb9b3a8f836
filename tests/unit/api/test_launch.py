"""What a worker that an application runs leaves as it is."""

import gc
import sys

from dueline import Dueline


def test_a_worker_inside_a_program_leaves_the_interpreter_as_it_is() -> None:
    app = Dueline("memory://")
    before = (sys.getswitchinterval(), gc.get_threshold())
    seen: list[object] = []

    @app.task(
        name="look",
    )
    def look() -> None:
        seen.append((sys.getswitchinterval(), gc.get_threshold()))

    look.enqueue()
    app.run_worker(burst=True)
    assert seen == [before]
