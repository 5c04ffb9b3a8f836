"""What handlers log is kept with the attempt."""

import logging

from dueline import Dueline, Retry

log = logging.getLogger("shop")


def the_log_of_a_failed_attempt_is_kept(url: str) -> None:
    """Run a task that fails once, and one that keeps nothing."""
    app = Dueline(url)

    @app.task(name="flaky", logs="failed", retry=Retry(attempts=2, delays=[0]))
    def flaky(word: str) -> None:
        log.warning("first\nfake \x1b[31m%s", word)
        try:
            [].pop()
        except IndexError:
            log.exception("failed")
            raise

    @app.task(name="mute", retry=Retry(attempts=1))
    def mute() -> None:
        log.warning("nobody keeps this")
        raise ValueError

    job, other = flaky.enqueue("red"), mute.enqueue()
    app.run_worker(["default"], burst=True)
    assert [one.fence for one in job.logs()] == [1, 2]
    first, second, *rest = job.logs()[0].text.splitlines()
    assert first.endswith("Z WARNING shop: first")
    assert second == "    fake \\x1b[31mred"
    assert rest[0].endswith("Z ERROR shop: failed")
    assert rest[1] == "    Traceback (most recent call last):"
    assert rest[-1] == "    IndexError: pop from empty list"
    assert other.logs() == []
    assert [one.fence for one in app.admin.get(str(job.id)).lines] == [1, 2]
    app.close()
