"""An application pauses a queue."""

import pytest

from dueline import Dueline


@pytest.mark.memory
@pytest.mark.parametrize("url", ["memory://", "memory://?transactional=off"])
def test_an_app_pauses_a_queue_and_resumes_it(url: str) -> None:
    app = Dueline(url)

    @app.task
    def add(a: int) -> int:
        return a + 1

    app.pause("default")
    job = add.enqueue(1)
    app.run_worker(burst=True)
    assert job.status == "ready"
    app.resume("default")
    app.run_worker(burst=True)
    assert job.result(1) == 2
    app.close()
