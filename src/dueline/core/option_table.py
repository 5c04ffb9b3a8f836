"""The options of a call, in one table: what callers write, and where it applies.

Faces derive from OPTIONS; `api.call_options` reads the values. Three faces list names and types
again, where people and editors read them: `Using.using`, `NewJob` of the HTTP API, and the options
of `dueline enqueue` and `schedules add`. `tests/unit/api/test_option_table.py` compares them.
"""

from enum import Enum
from typing import Final, NamedTuple

Shape = Enum("Shape", "TEXT NUMBER DURATION INSTANT END WORDS PAIRS OWN")
"""What a value is, for faces that read text or columns. END: an instant or a duration. WORDS and
PAIRS: strings, and strings by name. OWN: of a class of its own."""


class Option(NamedTuple):
    """One option of a call. name: of the argument of `using`, and the member of a job in HTTP.

    word, schedule_word: in `dueline enqueue` and `schedules add`; empty: it is not there. http:
    whether HTTP has it. column: of the rows that Spark enqueues. step: whether steps of workflows
    have it. instead: what to use in a schedule, which does not have it; empty if schedules do.
    """

    name: str
    shape: Shape
    word: str = ""
    schedule_word: str = ""
    http: bool = True
    column: str = ""
    step: bool = True
    instead: str = ""


_BY_SCHEDULE: Final = "Leave it out: the schedule sets the time."

OPTIONS: Final = (
    Option("due", Shape.INSTANT, "due", column="due", instead=_BY_SCHEDULE),
    Option("after", Shape.DURATION, "after", instead=_BY_SCHEDULE),
    Option("priority", Shape.NUMBER, "priority", "priority", column="priority"),
    Option("queue", Shape.TEXT, "queue", "queue", column="queue"),
    Option("tenant", Shape.TEXT, "tenant", "tenant", column="tenant"),
    Option("tx", Shape.OWN, http=False, step=False,
           instead="Leave it out: a schedule stores its jobs by itself."),
    Option("expires", Shape.END, "expires", column="expires",
           instead="Use `expires` with a duration."),
    Option("unique", Shape.OWN, "unique", column="unique_key", step=False,
           instead="Use `overlap` of the schedule, or a task without a unique key."),
    Option("window", Shape.DURATION, "window", "jitter", column="jitter", step=False),
    Option("tags", Shape.WORDS, "tag", column="tags"),
    Option("limits", Shape.WORDS),
    Option("wait", Shape.DURATION, http=False),
    Option("deadline", Shape.END, "deadline", instead=_BY_SCHEDULE),
    Option("retry", Shape.OWN),
    Option("timeout", Shape.DURATION),
    Option("kill_after", Shape.DURATION, http=False),
    Option("keep", Shape.DURATION, step=False),
    Option("headers", Shape.PAIRS, "header", column="headers"),
    Option("depends_on", Shape.OWN, "depends_on",
           instead="A schedule repeats its call. Wait inside the task, or use `overlap`."),
    Option("needs", Shape.PAIRS, "need", "need", column="needs"),
    Option("order_key", Shape.OWN, "order_key", step=False,
           instead="Use `overlap` of the schedule."),
    Option("webhook", Shape.OWN, http=False, step=False,
           instead="Leave it out: the last lines of the task can report it."),
)  # fmt: skip
"""All options of a call, which `using` and bulk calls have."""

NAMES: Final = tuple(option.name for option in OPTIONS)
