"""Values of numpy, pandas, pyarrow and polars, and of an application's own types.

None of these packages is imported for other values. Scalars become plain numbers, strings and
times. Arrays and frames become an object with two members, `$value`, the name of the type, and
`data`, its bytes as base64: an array in numpy's file format without pickle, a frame as a stream of
Arrow. The name selects a function of this module; it imports nothing else.
"""

import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from importlib import import_module
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeVar

from dueline.core.errors import BadInput
from dueline.core.extras import extra
from dueline.core.user_code import text_of

T = TypeVar("T")

TAG: Final = "$value"
"""The member of an object that names the type of a value."""

TAG_BYTES: Final = TAG.encode()

_LIBRARIES: Final = frozenset({"numpy", "pandas", "pyarrow", "polars"})
_TAGGED: Final = {TAG, "data"}


class OwnType(NamedTuple):
    """How values of a type of the application are stored; see `register_type`."""

    encode: Callable[[Any], object]
    decode: Callable[[Any], Any]


_own: Final[dict[type, OwnType]] = {}


def register_type(
    kind: type[T], *, encode: Callable[[T], object], decode: Callable[[Any], T]
) -> None:
    """Make values of a type of yours arguments, results and events.

    Call it next to the type, before tasks name it: each process that uses them needs it. Values
    become this type again where an annotation names it.

    Args:
        kind: The class; its subclasses are not included.
        encode: Returns a plain value of an object: numbers, text, lists, dicts.
        decode: Returns the object of a plain value.

    Raises:
        BadInput: `kind` is not a class, or one of the functions cannot be called.
    """
    if not isinstance(kind, type):
        raise BadInput(f"`kind` must be a class (got {kind!r:.80}).", hint="Use the class itself.")
    if not all(map(callable, (encode, decode))):
        raise BadInput(
            f"`encode` and `decode` of {kind.__name__} must be functions.",
            hint="Use register_type(Money, encode=str, decode=Money).",
        )
    _own[kind] = OwnType(encode, decode)


def _library_of(kind: type) -> str:
    """Return the library that has a type; "" for any other."""
    library = kind.__module__.partition(".")[0]
    return library if library in _LIBRARIES else ""


def is_library_type(kind: type) -> bool:
    """Return whether values of a type are stored by this module."""
    if kind in _own:
        return True
    return _library_of(kind) != "" and (_name_of(kind) in _FORMATS or _is_scalar_type(kind))


def _name_of(kind: type) -> str:
    return f"{_library_of(kind)}.{kind.__name__}"


def _is_scalar_type(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    return (numpy is not None and issubclass(kind, numpy.generic)) or issubclass(
        kind, date | timedelta
    )


def to_plain_value(value: object) -> object:
    """Return a value as plain values, for encoding.

    Raises:
        TypeError: The type is not known, or the value cannot be stored.
    """
    kind = type(value)
    if (own := _own.get(kind)) is not None:
        return own.encode(value)
    if not _library_of(kind):
        raise TypeError(f"Encoding objects of type {kind.__name__} is unsupported")
    if (form := _FORMATS.get(name := _name_of(kind))) is not None:
        try:
            return {TAG: name, "data": b64encode(form.write(value)).decode()}
        except Exception as error:
            raise TypeError(f"this {name} cannot be stored: {text_of(error)}") from error
    return plain_scalar(value)


def plain_scalar(value: Any) -> object:  # noqa: ANN401  (of any type)
    """Return a scalar of a library as a plain value; any other value as it is.

    Raises:
        TypeError: It is a scalar that no plain value has, such as a complex number.
    """
    kind = type(value)
    library = _library_of(kind)
    if not library:
        return value
    if kind.__name__ in ("NAType", "NaTType"):
        return None
    if library == "pandas" and isinstance(value, datetime | timedelta):
        return value.to_pydatetime() if isinstance(value, datetime) else value.to_pytimedelta()  # type: ignore[attr-defined]
    if _is_scalar_type(kind):
        numpy = sys.modules["numpy"]
        if isinstance(value, numpy.datetime64 | numpy.timedelta64):
            value = (
                value
                if value.dtype.str.endswith("[D]")
                else value.astype(f"{kind.__name__[:-2]}64[us]")
            )
        plain: object = value.item()
        if plain is None or isinstance(
            plain, bool | int | float | str | bytes | date | time | timedelta
        ):
            return plain
    if library in ("numpy", "pandas"):
        raise TypeError(f"Encoding objects of type {_name_of(kind)} is unsupported")
    return value


def from_plain_value(kind: Any, value: Any) -> Any:  # noqa: ANN401  (of any type)
    """Return a plain value as a type that this module stores.

    Raises:
        TypeError, ValueError: The value does not fit.
    """
    if (own := _own.get(kind)) is not None:
        return own.decode(value)
    name = _name_of(kind)
    if isinstance(value, dict) and value.keys() == _TAGGED:
        read = restored(value)
        if not isinstance(read, kind):
            raise TypeError(f"Expected `{name}`, got `{value[TAG]}`")
        return read
    if name == "numpy.ndarray" and isinstance(value, list):
        array = import_module("numpy").asarray(value)
        if array.dtype.kind != "O":
            return array
    if name not in _FORMATS and not isinstance(value, dict | list):
        return kind(value)
    raise TypeError(f"Expected `{name}`, got `{type(value).__name__}`")


def restored(value: Any) -> Any:  # noqa: ANN401  (of any type)
    """Return a plain value with the arrays and frames in it.

    Raises:
        TypeError, ValueError: One is damaged.
    """
    if isinstance(value, dict):
        form = _FORMATS.get(value[TAG]) if _is_tagged(value) else None
        if form is None:
            return {key: restored(member) for key, member in value.items()}
        try:
            return form.read(b64decode(value["data"], validate=True))
        except ModuleNotFoundError:
            raise
        except Exception as error:
            raise ValueError(f"damaged `{value[TAG]}`: {text_of(error)}") from error
    if isinstance(value, tuple | list):
        return type(value)(map(restored, value)) if type(value) in (tuple, list) else value
    return value


def _is_tagged(value: dict[Any, Any]) -> bool:
    return (
        value.keys() == _TAGGED and isinstance(value[TAG], str) and isinstance(value["data"], str)
    )


def is_same_value(given: Any, got: Any) -> bool:  # noqa: ANN401  (of any type)
    """Return whether a value without an annotation became a fitting one."""
    try:
        return type(plain_scalar(given)) is type(got)
    except TypeError:
        return False


# --- formats -------------------------------------------------------------------------------------


class _Format(NamedTuple):
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


def _arrow() -> Any:  # noqa: ANN401  (a module)
    with extra("arrow"):
        return import_module("pyarrow")


def _write_array(array: Any) -> bytes:  # noqa: ANN401
    buffer = BytesIO()
    import_module("numpy").save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _read_array(data: bytes) -> Any:  # noqa: ANN401
    return import_module("numpy").load(BytesIO(data), allow_pickle=False)


def _write_table(table: Any) -> bytes:  # noqa: ANN401
    arrow = _arrow()
    sink = arrow.BufferOutputStream()
    with import_module("pyarrow.ipc").new_stream(sink, table.schema) as stream:
        stream.write(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _read_table(data: bytes) -> Any:  # noqa: ANN401
    _arrow()
    return import_module("pyarrow.ipc").open_stream(data).read_all()


def _read_batch(data: bytes) -> Any:  # noqa: ANN401
    return _read_table(data).combine_chunks().to_batches()[0]


def _write_frame(frame: Any) -> bytes:  # noqa: ANN401
    return _write_table(_arrow().Table.from_pandas(frame))


def _read_frame(data: bytes) -> Any:  # noqa: ANN401
    return _read_table(data).to_pandas()


_SERIES: Final = "series"
"""The column of a series or an index; its own name may be anything."""


def _write_series(series: Any) -> bytes:  # noqa: ANN401
    table = _arrow().Table.from_pandas(series.to_frame(name=_SERIES))
    name = {} if series.name is None else {b"series": str(series.name).encode()}
    return _write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **name}))


def _read_series(data: bytes) -> Any:  # noqa: ANN401
    table = _read_table(data)
    name = (table.schema.metadata or {}).get(b"series")
    return table.to_pandas()[_SERIES].rename(None if name is None else name.decode())


def _write_polars(frame: Any) -> bytes:  # noqa: ANN401
    buffer = BytesIO()
    frame.write_ipc_stream(buffer)
    return buffer.getvalue()


def _read_polars(data: bytes) -> Any:  # noqa: ANN401
    with extra("polars", is_package=True):
        return import_module("polars").read_ipc_stream(data)


_FORMATS: Final = {
    "numpy.ndarray": _Format(_write_array, _read_array),
    "pandas.DataFrame": _Format(_write_frame, _read_frame),
    "pandas.Series": _Format(_write_series, _read_series),
    "pyarrow.Table": _Format(_write_table, _read_table),
    "pyarrow.RecordBatch": _Format(_write_table, _read_batch),
    "polars.DataFrame": _Format(_write_polars, _read_polars),
}
