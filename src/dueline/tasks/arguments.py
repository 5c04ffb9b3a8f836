"""Encode and decode the arguments of a function."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from dueline.core.codec import (
    AS_JSON,
    PAYLOAD_BYTES_MAX,
    Form,
    binary_in,
    from_plain,
    holds_binary,
    is_model,
    learned,
    plain_bodies,
    with_frames,
)
from dueline.core.errors import BadInput
from dueline.core.library_values import is_same_value
from dueline.core.user_code import text_of
from dueline.tasks.familiar_words import hint_of_call

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError)
"""The exceptions of decoding a body that is damaged, or does not fit."""

_SCALARS: Final = frozenset({int, float, str, bool, type(None)})


class Misfit(BadInput):
    """Arguments do not fit the function; that of another version may be able to take them."""


class _Call(msgspec.Struct):
    """The long form of a body."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class Arguments:
    """Encodes and decodes the arguments of one function, checked against its annotations.

    Args:
        task: Name for messages.
        skip: Number of leading parameters that callers omit.

    Raises:
        BadInput: An annotation cannot be resolved, or JSON cannot represent it.
    """

    def __init__(self, function: Callable[..., object], task: str, *, skip: int) -> None:
        parameters = list(inspect.signature(function).parameters.values())[skip:]
        self._task = task
        self._signature = inspect.Signature(parameters)
        try:
            annotations = get_type_hints(function, include_extras=True)
            self._hints = hints = {name: _bounded(kind) for name, kind in annotations.items()}
            self._kinds = {
                parameter.name: hints.get(parameter.name, Any) for parameter in parameters
            }
            for name, kind in self._kinds.items():
                _check_decodable(name, kind)
            self._readers: dict[str, Callable[[bytes], Sequence[Any]]] = {}
            self._read = self._reader_of(AS_JSON)
        except (NameError, TypeError) as error:
            raise BadInput(
                f"An annotation of {task}{self._signature} cannot be used: {error}.",
                hint="Annotate arguments with types that JSON can carry, resolvable at run time.",
            ) from error
        self._is_plain = all(parameter.kind in _POSITIONAL for parameter in parameters)
        self._untyped = [name for name in self._kinds if name not in hints]

    def _reader_of(self, form: Form) -> Callable[[bytes], Sequence[Any]]:
        """Return the decoder of arrays of positional arguments; created at its first use."""
        read = self._readers.get(form.name)
        if read is None:
            positional = [
                parameter
                for parameter in self._signature.parameters.values()
                if parameter.kind in _POSITIONAL
            ]
            read = self._readers[form.name] = _reader(positional, self._hints, form)
        return read

    def encode(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        form: Form = AS_JSON,
        bytes_max: int = PAYLOAD_BYTES_MAX,
    ) -> bytes:
        """Encode arguments as a body, and check that the handler can decode them.

        Raises: BadInput: they do not fit the function, cannot be encoded, or are too large.
        """
        value: object = args
        if kwargs or not self._is_plain:
            bound = self._bind(args, kwargs)
            value = {"args": bound.args, "kwargs": bound.kwargs} if bound.kwargs else bound.args
        body = self._written(value, form, bytes_max)
        read = self.decode(body, form)
        if not _SCALARS.issuperset(map(type, chain(args, kwargs.values()))):
            self._check_types(args, kwargs, read, form)
        return body

    def _check_types(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        read: tuple[Sequence[Any], Mapping[str, Any]],
        form: Form,
    ) -> None:
        """Check that the handler gets what the caller passes.

        JSON has no form of its own for bytes, dates, sets, tuples or keys that are not strings:
        they become that again only where an annotation says so.

        Raises: BadInput: the handler would get another type.
        """
        if self._untyped:
            given, got = (self._bind(*call).arguments for call in ((args, kwargs), read))
            for name in self._untyped:
                if name in given:
                    self._check_same(name, given[name], got[name])
        if (
            form is AS_JSON
            and holds_binary((args, kwargs))
            and binary_in((args, kwargs)) - binary_in(read)
        ):
            raise BadInput(
                f"An argument of {self._task}{self._signature} holds bytes that its handler "
                "would read as base64 text.",
                hint='Annotate them as `bytes`, or use the codec: @app.task(codec="msgpack").',
            )

    def _check_same(self, name: str, given: Any, got: Any) -> None:  # noqa: ANN401
        """Check that an argument without an annotation keeps its type."""
        pairs, stars = [(name, given, got)], ""
        match self._signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                stars = "*"
                pairs = [(name, *pair) for pair in zip(given, got, strict=True)]
            case inspect.Parameter.VAR_KEYWORD:
                stars = "**"
                pairs = [(key, value, got[key]) for key, value in given.items()]
        for place, before, after in pairs:
            if not _is_same(before, after):
                raise BadInput(
                    f"The handler of {self._task} would get `{place}` as another type: "
                    f"{before!r:.80} would become {after!r:.80}.",
                    hint=f"Annotate it: `{stars}{name}: {_annotation_of(before)}`.",
                )

    def _written(self, value: object, form: Form, bytes_max: int, *, given: int = 0) -> bytes:
        try:
            body = form.write(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            what = f"{self._unwritten(value, form, given)} of {self._task}"
            raise BadInput(
                f"{what} cannot be written as {form.name}: {text_of(error)}.",
                hint="Pass plain values (numbers, text, lists, dicts, dataclasses), or name how "
                "the type is stored: dueline.register_type(...).",
            ) from error
        if len(body) > bytes_max:
            raise BadInput(
                f"The arguments of {self._task} have {len(body)} bytes; {bytes_max} are allowed.",
                hint="Keep large arguments in a folder, Dueline(..., blobs=...), or store the data "
                "elsewhere and pass where it is.",
            )
        return body

    def _unwritten(self, value: object, form: Form, given: int) -> str:
        """Return the argument that cannot be written, by its name if it has one."""
        call: Any = value if isinstance(value, Mapping) else {"args": value, "kwargs": {}}
        named = zip([*self._kinds][given:], call["args"], strict=False)
        for name, argument in chain(named, call["kwargs"].items()):
            try:
                form.write(argument)
            except (TypeError, ValueError, OverflowError, RecursionError):
                return f"The argument `{name}`"
        return "An argument"

    def encode_rest(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        given: int,
        form: Form,
        bytes_max: int = PAYLOAD_BYTES_MAX,
    ) -> bytes:
        """Encode the arguments of a call without the first `given`, which are not known yet.

        Raises: as `encode`.
        """
        if not given:
            return self.encode(args, kwargs, form, bytes_max)
        unknown = [None] * given
        bound = self._bind([*unknown, *args], kwargs)
        rest = bound.args[given:]
        value = {"args": rest, "kwargs": bound.kwargs} if bound.kwargs else rest
        body = self._written(value, form, bytes_max, given=given)
        try:
            call = _call_in(body, form)
            read = self._converted([*unknown, *call.args], call.kwargs, unknown=given)
        except (msgspec.ValidationError, TypeError) as error:
            raise self._unfit(error) from error
        if not _SCALARS.issuperset(map(type, chain(args, kwargs.values()))):
            self._check_types([*unknown, *args], kwargs, read, form)
        return body

    def encode_many(
        self, calls: Sequence[Sequence[object]], bytes_max: int = PAYLOAD_BYTES_MAX
    ) -> list[bytes]:
        """Encode the positional arguments of many calls, as `encode` does for one.

        Plain calls without a null are encoded and checked without a Python call for each.

        Raises: as `encode`.
        """
        if self._is_plain:
            try:
                bodies = plain_bodies(calls)
                if bodies is not None:
                    for body in bodies:
                        self._read(body)
                    if _SCALARS.issuperset(map(type, chain.from_iterable(calls))):
                        return bodies
                    if not self._untyped and not holds_binary(calls):
                        return bodies
            except (TypeError, ValueError, OverflowError, RecursionError, msgspec.DecodeError):
                pass  # a call cannot be stored: reported below
        return [self.encode(args, {}, AS_JSON, bytes_max) for args in calls]

    @cached_property
    def signature(self) -> str:
        """A digest of the parameters and their types, the same in each process of a version."""
        parts = [
            (parameter.name, parameter.kind.name, parameter.default is parameter.empty,
             _described(self._kinds[parameter.name]))
            for parameter in self._signature.parameters.values()
        ]  # fmt: skip
        return blake2b(msgspec.json.encode(parts), digest_size=4).hexdigest()

    @property
    def names(self) -> Sequence[str]:
        """The names of the arguments."""
        return list(self._kinds)

    def named(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the arguments of a call by name, including defaults.

        Raises: BadInput: they do not fit the function.
        """
        bound = self._bind(args, kwargs)
        bound.apply_defaults()
        return bound.arguments

    def _bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise Misfit(
                f"The arguments do not fit {self._task}{self._signature}: {error}.",
                hint=hint_of_call(name for name in kwargs if name not in self._kinds),
            ) from error

    def plain_reader(self) -> Callable[[bytes], Sequence[Any]] | None:
        """Return the decoder of bodies that are arrays; None if a parameter has no place in one.

        For other bodies it raises any exception: `decode` decodes them, or reports what is wrong.
        """
        return self._read if self._is_plain else None

    def decode(self, body: bytes, form: Form = AS_JSON) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Decode the arguments of a body as the annotated types.

        Raises: Misfit: they do not fit the function. BadInput: the body is damaged.
        """
        try:
            if self._is_plain and body.startswith(form.arrays):
                read = self._read if form is AS_JSON else self._reader_of(form)
                return read(body), {}
            call = _call_in(body, form)
            args, kwargs = self._converted(call.args, call.kwargs)
            return with_frames(args, body), with_frames(kwargs, body)
        except UNREADABLE as error:
            raise self._unfit(error, body, form) from error

    def decode_rest(
        self, given: bytes, body: bytes, form: Form
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Decode the arguments of a body after the first ones, `given` as a JSON array.

        Raises: as `decode`.
        """
        try:
            call = _call_in(body, form)
            first = msgspec.json.decode(given, type=list[Any])
            return self._converted([*first, *call.args], call.kwargs)
        except UNREADABLE as error:
            raise self._unfit(error) from error

    def _unfit(self, error: Exception, body: bytes = b"", form: Form = AS_JSON) -> BadInput:
        """Return the error for a body that cannot be decoded; it names the parameter."""
        text, names = text_of(error), [*self._kinds]
        if (place := _ELEMENT.fullmatch(text)) and int(place[2]) < len(names):
            text = f"`{names[int(place[2])]}{place[3]}`: {place[1]}"
        elif text.startswith("Expected `array` of"):
            try:
                self._bind(_call_in(body, form).args, {})
            except BadInput as wrong:  # the error names the parameter
                return wrong
            except UNREADABLE:
                pass  # the body is damaged
        is_misfit = isinstance(error, msgspec.ValidationError | TypeError)
        kind = Misfit if is_misfit else BadInput  # no version can read a damaged body
        return kind(f"The arguments do not fit {self._task}{self._signature}: {text}.")

    def _converted(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, unknown: int = 0
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Convert plain values to the annotated types, except the first `unknown` ones."""
        bound = self._bind(args, kwargs)
        for name, value in [*bound.arguments.items()][unknown:]:
            kind = self._kinds[name]
            match self._signature.parameters[name].kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    many = tuple.__class_getitem__((kind, ...))
                    bound.arguments[name] = _convert(name, value, many)
                case inspect.Parameter.VAR_KEYWORD:
                    bound.arguments[name] = {
                        key: _convert(key, argument, kind) for key, argument in value.items()
                    }
                case _:
                    bound.arguments[name] = _convert(name, value, kind)
        return bound.args, bound.kwargs


def _convert(name: str, value: object, kind: Any) -> Any:  # noqa: ANN401  (a type, and its value)
    """Convert a plain value; the error names the argument."""
    try:
        return msgspec.convert(value, kind, str_keys=True, dec_hook=from_plain)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        raise msgspec.ValidationError(f"`{name}{place[:-1]}`: {text}") from error


def _check_decodable(name: str, kind: Any) -> None:  # noqa: ANN401  (a type)
    """Raise TypeError, which names the parameter, if JSON cannot be decoded as its type."""
    try:
        AS_JSON.decoder(kind)
    except TypeError as error:
        raise TypeError(f"`{name}`: {error}") from error


_ELEMENT: Final = re.compile(r"(.*) - at `\$\[(\d+)\](.*)`")

_BOUNDS: Final = frozenset(
    ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
)


def _bounded(kind: Any) -> Any:  # noqa: ANN401  (a type)
    """Return a type with the constraints of annotated_types and pydantic as msgspec's."""
    if get_origin(kind) is not Annotated:
        return kind
    own, *metadata = get_args(kind)
    known = [meta for meta in metadata if isinstance(meta, msgspec.Meta)]
    others = [item for item in metadata if item not in known]
    flat = [*others, *chain.from_iterable(getattr(other, "metadata", ()) for other in others)]
    bounds = {
        name: getattr(item, name)
        for item in flat
        for name in _BOUNDS
        if getattr(item, name, None) is not None
    }
    return Annotated[own, *known, msgspec.Meta(**bounds)] if bounds else kind


def _is_same(given: object, got: object) -> bool:
    """Return whether two values have the same types throughout."""
    if type(given) is not type(got):
        return is_same_value(given, got)
    if isinstance(given, dict) and isinstance(got, dict):
        pairs = (zip(given, got, strict=True), zip(given.values(), got.values(), strict=True))
        return len(given) == len(got) and all(_is_same(*pair) for side in pairs for pair in side)
    if isinstance(given, list | tuple) and isinstance(got, list | tuple):
        return len(given) == len(got) and all(map(_is_same, given, got))
    return True


def _annotation_of(value: object) -> str:
    """Return the annotation of a value, for a hint."""
    name = "Path" if isinstance(value, Path) else type(value).__name__
    if isinstance(value, dict) and value:
        odd = next((key for key in value if type(key) is not str), "")
        inner = [item for item in value.values() if type(item) not in _SCALARS]
        return f"dict[{_annotation_of(odd)}, {_annotation_of([*inner, *value.values()][0])}]"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return name  # a named tuple
    if isinstance(value, list | tuple | set | frozenset) and value:
        inner = [item for item in value if type(item) not in _SCALARS]
        member = _annotation_of([*inner, *value][0])
        return f"{name}[{member}, ...]" if isinstance(value, tuple) else f"{name}[{member}]"
    return name


def _call_in(body: bytes, form: Form) -> _Call:
    if body.startswith(form.arrays):
        return _Call(args=form.decoder(list[Any])(body))
    return form.decoder(_Call)(body)  # type: ignore[no-any-return]  # what it was made for


def _described(kind: Any) -> object:  # noqa: ANN401  (a type)
    """Return what values a type has, with those of its fields."""
    try:
        return learned(lambda: msgspec.json.schema(kind, schema_hook=_schema_of))
    except Exception:  # noqa: BLE001  (a type of the application, which JSON schemas cannot tell)
        return inspect.formatannotation(kind)


def _schema_of(kind: Any) -> dict[str, Any]:  # noqa: ANN401  (a type)
    if is_model(kind):
        schema: dict[str, Any] = kind.model_json_schema()
        return schema
    return {"type": f"{kind.__module__}.{kind.__qualname__}"}


def _takes_any(kind: Any) -> bool:  # noqa: ANN401  (a type)
    """Return whether values of a type may hold arrays or frames that no annotation names."""
    return kind in _OPEN or any(map(_takes_any, get_args(kind)))


_OPEN: Final = (Any, object, list, dict, tuple)
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _reader(
    parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any], form: Form
) -> Callable[[bytes], Sequence[Any]]:
    """Return the decoder of positional arguments; omitted ones are not in its result."""
    fields = [_field(parameter, hints) for parameter in parameters]
    takes_any = any(map(_takes_any, (kind for _, kind, *_ in fields)))
    if all(parameter.default is parameter.empty for parameter in parameters):
        kinds = tuple.__class_getitem__(tuple(kind for _, kind, *_ in fields))
        decode = form.decoder(kinds)
        return (lambda body: with_frames(decode(body), body)) if takes_any else decode
    struct = msgspec.defstruct("Arguments", fields, array_like=True, forbid_unknown_fields=True)
    decode_struct = form.decoder(struct)

    def read(body: bytes) -> Sequence[Any]:
        values = msgspec.structs.astuple(decode_struct(body))
        if takes_any:
            values = with_frames(values, body)
        return values if UNSET not in values else values[: values.index(UNSET)]

    return read


def _field(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> tuple[Any, ...]:
    kind = hints.get(parameter.name, Any)
    if parameter.default is parameter.empty:
        return (parameter.name, kind)
    return (parameter.name, kind | UnsetType if kind is not Any else Any, UNSET)
