"""One call of a function with the jobs of a batch."""

from collections.abc import Sequence
from typing import Any, Protocol

from dueline.core.attempt import Each, Ending, GivenBack
from dueline.core.errors import BadInput
from dueline.core.job import Claim, Job
from dueline.core.user_code import Raised, contain
from dueline.tasks.batch_handler import BatchHandler, Call
from dueline.tasks.handler import Context, Handler
from dueline.worker.assignment import Assignment, done_with, fitting
from dueline.worker.context_controls import Controls


class EndingRules(Protocol):
    """Decides how attempts begin and end."""

    controls: Controls

    def begin(self, assignment: Assignment, now_us: int) -> Ending | None: ...  # noqa: D102
    def ending_of(self, error: BaseException, handler: Handler, job: Job) -> Ending: ...  # noqa: D102
    def end(self, job: Job, context: Context | None, ending: Ending) -> Ending: ...  # noqa: D102


class BatchRun:
    """The jobs of one call, and how each of them ended.

    Attributes:
      calls: What the function gets: jobs that may still run, and whose values fit.
    """

    def __init__(
        self, judge: EndingRules, assignment: Assignment, handler: BatchHandler, started_us: int
    ) -> None:
        self.calls: list[Call[Any]] = []
        self._judge = judge
        self._handler = handler
        self._is_one = not assignment.chunk
        self._all = assignment.chunk or (assignment,)
        self._in: list[Assignment] = []
        self._endings: dict[Claim, Ending] = {}
        for member in self._all:
            self._invite(member, started_us)

    def _invite(self, member: Assignment, started_us: int) -> None:
        judge, handler, job = self._judge, self._handler, member.job
        claim = job.claim()
        if not self._is_one and judge.controls.is_lost(claim):
            self._endings[claim] = GivenBack()  # nothing could be stored for it
            return
        if (refusal := judge.begin(member, started_us)) is not None:
            self._endings[claim] = refusal
            return
        value = contain(fitting, handler.value_of, job.codec, job.body, member.given)
        if isinstance(value, Raised):  # by a codec of the application's own, say
            ending = judge.ending_of(value.error, handler, job)
            self._endings[claim] = judge.end(job, None, ending)
            return
        self._in.append(member)
        self.calls.append(
            Call(value, job, judge.controls, handler, member.last, started_us=started_us)
        )

    def take(self, returned: object) -> None:
        """Take what the function returned: a result for each call, or None."""
        if returned is None:
            returned = [None] * len(self.calls)
        if not isinstance(returned, Sequence) or len(returned) != len(self.calls):
            what = f"{len(returned)} results" if isinstance(returned, Sequence) else repr(returned)
            self.fail(
                BadInput(
                    f"{self._handler.name} returned {what:.80} for {len(self.calls)} calls.",
                    hint="Return a list with one result for each call, in their order, or None.",
                )
            )
            return
        for member, call, result in zip(self._in, self.calls, returned, strict=True):
            self._end(member, call, None, result)

    def fail(self, error: BaseException) -> None:
        """Take what the function raised, for all jobs that have not ended."""
        for member, call in zip(self._in, self.calls, strict=True):
            self._end(member, call, error, None)

    def _end(
        self, member: Assignment, call: Call[Any], raised: BaseException | None, result: object
    ) -> None:
        judge, claim = self._judge, member.job.claim()
        if claim in self._endings:  # the time limit expired after its result
            return
        if call.is_ended:
            raised, result = call.raised, call.result
        ending = (
            Raised(raised) if raised is not None
            else contain(done_with, member, self._handler, call, result)
        )  # fmt: skip
        if isinstance(ending, Raised):  # a result that cannot be encoded, say
            ending = judge.ending_of(ending.error, self._handler, member.job)
        self._endings[claim] = judge.end(member.job, call, ending)

    def ending(self) -> Ending:
        """Return how the jobs ended."""
        if self._is_one:
            return self._endings[self._all[0].job.claim()]
        return Each([*self._endings.items()])
