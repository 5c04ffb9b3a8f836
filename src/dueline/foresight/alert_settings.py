"""The settings of alerts, stored so that any maintenance leader reads the same."""

from dataclasses import dataclass
from typing import Annotated, Final

from dueline.core.codec import encode
from dueline.core.constraints import constraint
from dueline.core.ids import Ids
from dueline.core.readable_records import value_at
from dueline.core.store import Put, Records
from dueline.foresight.target import Target, target_of

PARTITION: Final = "alerts"
TARGETS_MAX: Final = 1_000
SECRET_CHARACTERS_MIN: Final = 16
WEBHOOK_TASK: Final = "dueline.webhook"

Url = Annotated[
    str, constraint("an http or https URL", 'Use "https://...".', pattern=r"^https?://[^/\s]+\S*$")
]
Secret = Annotated[
    str,
    constraint(
        f"a string of at least {SECRET_CHARACTERS_MIN} characters",
        "Use a random one, such as `secrets.token_hex()`.",
        min_length=SECRET_CHARACTERS_MIN,
    ),
]
_Targets = Annotated[
    tuple[tuple[str, str], ...],
    constraint(f"targets of at most {TARGETS_MAX} queues", "", max_length=TARGETS_MAX),
]


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """What is watched, and where alerts go besides the log.

    Attributes:
      targets: Targets of queues, such as p99<2s; "*" for other queues.
      webhook_queue: Queue of the jobs that call the webhook; empty without one.
      is_on: Whether queues are watched.
    """

    targets: _Targets = ()
    webhook_queue: str = ""
    is_on: bool = True

    def target(self, queue: str) -> Target | None:
        """Return the target of a queue; None if it has none."""
        known = dict(self.targets)
        text = known.get(queue, known.get("*"))
        return None if text is None else target_of(text)


def read_settings(records: Records) -> AlertSettings:
    """Return the settings that were stored last, or the defaults."""
    return value_at(records, PARTITION, "settings", AlertSettings)[0] or AlertSettings()


def write_settings(records: Records, settings: AlertSettings, ids: Ids) -> None:
    """Store settings, unless they are stored already."""
    if read_settings(records) != settings:
        put = Put("settings", ids.token(), encode(settings))
        records.commit(PARTITION, (put,))
