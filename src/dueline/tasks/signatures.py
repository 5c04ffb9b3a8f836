"""What arguments the tasks of an application take, as far as other versions must know it."""

from collections.abc import Iterator, Mapping

from dueline.tasks.handler import Handler


class Signatures(Mapping[str, str]):
    """The signatures of handlers, by task; more may be registered later."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers

    def __getitem__(self, task: str) -> str:
        return self._handlers[task].arguments.signature

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)
