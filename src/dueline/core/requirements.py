"""What tasks require of their store, as `requires="fifo, transactions"`.

A store that cannot hold it is refused when a call is enqueued and when a worker starts.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from dueline.core.engine import Engine
from dueline.core.errors import BadInput, ConfigError
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Store, Transactional
from dueline.core.store_capabilities import JoinsTransactions

_ABILITIES: Final[Mapping[str, tuple[type, str]]] = {
    "transactions": (Transactional, "The store has no transactions of callers."),
    "joined transactions": (
        JoinsTransactions,
        "The store cannot take part in a transaction of your own connection.",
    ),
}
"""What each word requires of a store, and what a store without it lacks."""

WORDS: Final = ("fifo", "durable", *_ABILITIES)
"""All words. fifo: one order of all jobs of a priority and tenant. durable: jobs survive the
process.
"""


class Requirements(NamedTuple):
    """What a task requires.

    Attributes:
        words: Some of WORDS.
        task: The name of the task.
        queue: The default queue of the task.
    """

    words: tuple[str, ...]
    task: str
    queue: str


def read_requirements(requires: object) -> tuple[str, ...]:
    """Return the words of an option `requires`.

    Raises:
        BadInput: It is no string of words, or names an unknown one.
    """
    words = [word.strip() for word in requires.split(",")] if isinstance(requires, str) else []
    unknown = [word for word in words if word not in WORDS]
    if unknown or not words:
        what = f"the word {unknown[0]!r:.80}" if unknown else f"{requires!r:.80}"
        raise BadInput(
            f"`requires` cannot have {what}.",
            hint=f"Use words separated by commas: {', '.join(WORDS)}.",
        )
    return tuple(dict.fromkeys(words))


def expect_met(engine: Engine, required: Requirements, queue: str) -> None:
    """Check that a store and a queue hold what a task requires.

    Raises:
        ConfigError: They do not.
    """
    settings = engine.catalog.settings(queue)
    for word in required.words:
        lack, hint = _lack(word, engine.store, queue, settings)
        if lack:
            raise ConfigError(
                f'The task {required.task} requires "{word}", which does not hold here: {lack}',
                hint=hint,
            )


def _lack(word: str, store: Store, queue: str, settings: QueueSettings) -> tuple[str, str]:
    """Return why a word does not hold, empty if it does, and what to do."""
    if word == "fifo":
        lack = f"the queue {queue} has {settings.shards} shards, each with an order of its own."
        hint = f'Use app.queue("{queue}", shards=1), or another queue.'
        return (lack if settings.shards > 1 else ""), hint
    hint = "Use another store, or leave the word out of `requires`."
    if word == "durable":
        return ("jobs end with the process." if store.scope == "process" else ""), hint
    kind, lack = _ABILITIES[word]
    return ("" if isinstance(store, kind) else lack[0].lower() + lack[1:]), hint
