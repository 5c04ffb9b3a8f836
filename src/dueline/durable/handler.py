"""Handlers of durable functions."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.durable.context import DurableContext
from dueline.durable.values import ValueHandler
from dueline.jobs.queue import Queues

if TYPE_CHECKING:
    from dueline.core.shared_calls import SharedCalls
    from dueline.jobs.decisions import Decision


class DurableHandler(ValueHandler):
    """A durable function.

    Args:
        function: The function; it takes a DurableContext first.
        queues: Returns the queues of the application.
        shared: Returns what writes the records of its coroutine functions.
        version: Of the code; new functions note it.
        **terms: Those of `Handler`.

    Raises:
        BadInput: As `Handler`, or the function does not take a DurableContext.
    """

    context_class = DurableContext
    is_durable = True

    __slots__ = ("_body",)

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        queues: Callable[[], Queues],
        shared: "Callable[[], SharedCalls[Decision, bool]]",
        version: str = "",
        **terms: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(function, **terms)
        if not self.takes_context:
            raise BadInput(
                f"The durable function {self.name} does not take a DurableContext.",
                hint="Write `def f(ctx: DurableContext, ...)`.",
            )
        self.queues = queues
        self.engine = lambda: queues().engine
        self.shared = shared
        self.version = version
        self._body = function
        self.function = self._run_async if self.is_async else self._run

    @property
    def body(self) -> Callable[..., Any]:
        """The application's own function."""
        return self._body

    def _run(self, ctx: DurableContext, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return ctx.run(self._body, args, kwargs)

    async def _run_async(self, ctx: DurableContext, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return await ctx.arun(self._body, args, kwargs)

    def call_here(self, row: Job, args: Any, kwargs: Any) -> Any:  # noqa: ANN401, ARG002
        """Refuse a direct call: it has no log."""
        raise BadInput(
            f"The durable function {self.name} cannot be called directly: it has no log then.",
            hint="Use .enqueue(...) and a worker, or dueline.testing in tests.",
        )
