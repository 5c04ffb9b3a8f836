"""Options of calls on the command line; the table OPTIONS names each by its `word`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from typer import Option

from dueline.api.dependency import Dependency
from dueline.cli.options import (
    HeadersOption,
    TagsOption,
    option,
    read_instant,
    read_pairs,
    read_span,
)
from dueline.core.call_options import (
    Mode,
    OrderKey,
    Unique,
    WaitFailures,
    without_names,
)
from dueline.core.errors import BadInput
from dueline.core.option_table import OPTIONS, Shape
from dueline.core.queue_settings import DeadInOrder

_Text = str | None
NeedsOption = Annotated[
    list[str] | None,
    option("NAME=VALUE", "Label or units that its worker must have; repeatable."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """Options of `dueline enqueue`."""

    after: Annotated[_Text, option("DURATION", "Start after this duration: 90s, 10m, 2h, 3d.")] = (
        None
    )
    due: Annotated[_Text, option("TIMESTAMP", "Start at this time: 2027-01-01T09:00:00+02:00.")] = (
        None
    )
    priority: Annotated[int | None, option("N", "Priority; default: the task's own.")] = None
    deadline: Annotated[
        _Text, option("DURATION", "Finish within this duration; instead of --priority.")
    ] = None
    queue: Annotated[_Text, option("NAME", "Queue; default: the task's own.")] = None
    tenant: Annotated[_Text, option("NAME", "Tenant of the job.")] = None
    tag: TagsOption = None
    header: HeadersOption = None
    need: NeedsOption = None
    expires: Annotated[
        _Text, option("DURATION", "Expire after this duration: 90s, 10m, 2h, 3d.")
    ] = None
    window: Annotated[_Text, option("DURATION", "Start at a random time within this duration.")] = (
        None
    )
    unique: Annotated[_Text, option("KEY", "Unique key; see --mode.")] = None
    mode: Annotated[Mode | None, Option("--mode", help="Set what happens if the key is taken.")] = (
        None
    )
    order_key: Annotated[
        _Text, option("KEY", "Run after the earlier jobs of this key; see --dead.")
    ] = None
    dead: Annotated[
        DeadInOrder | None,
        Option("--dead", help="Set if a dead job blocks its order key."),
    ] = None
    depends_on: Annotated[
        list[str] | None,
        option("ID", "Start after this job or workflow; repeatable. See --failures."),
    ] = None
    failures: Annotated[
        WaitFailures | None,
        Option("--failures", help="Set what happens if one that it depends on fails."),
    ] = None

    def read(self) -> dict[str, Any]:
        """Return the options that are given as `using` takes them."""
        if not self.depends_on and self.failures is not None:
            raise BadInput("--failures needs --depends-on.", hint="Add --depends-on ID.")
        if self.order_key is None and self.dead is not None:
            raise BadInput("--dead needs --order-key.", hint="Add --order-key KEY.")
        if self.unique is None and self.mode is not None:
            raise BadInput("--mode needs --unique.", hint="Add --unique KEY.")
        read = _read(self, {option.name: option.word for option in OPTIONS})
        if self.unique is not None:  # braces do not name arguments here
            read["unique"] = Unique(without_names(self.unique), mode=self.mode or "reject")
        if self.order_key is not None:
            read["order_key"] = OrderKey(without_names(self.order_key), self.dead)
        if self.depends_on:
            read["depends_on"] = Dependency(self.depends_on, self.failures or "stop")
        return read


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleCallOptions:
    """Options of the calls of `dueline schedules add`."""

    jitter: Annotated[_Text, option("DURATION", "Spread starts over this duration.")] = None
    queue: Annotated[_Text, option("NAME", "Queue; default: the task's own.")] = None
    priority: Annotated[int | None, option("N", "Priority; default: the task's own.")] = None
    tenant: Annotated[_Text, option("NAME", "Tenant of the jobs.")] = None
    need: NeedsOption = None

    def read(self) -> dict[str, Any]:
        """Return the options that are given as `using` takes them."""
        return _read(self, {option.name: option.schedule_word for option in OPTIONS})


_READ: Final[Mapping[Shape, Callable[[Any, str], Any]]] = {
    Shape.DURATION: lambda text, _: read_span(text), Shape.END: lambda text, _: read_span(text),
    Shape.INSTANT: lambda text, _: read_instant(text), Shape.PAIRS: read_pairs,
}  # fmt: skip
"""How words are read, if not as they are."""


def _read(group: object, words: Mapping[str, str]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, shape, *_ in OPTIONS:
        word = words[name]
        value = getattr(group, word) if word else None
        if value is not None and value != []:
            how = _READ.get(shape)
            read[name] = value if how is None else how(value, word)
    return read
