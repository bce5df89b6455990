"""Partition values as directory names, in the form that Hive and Spark write, and back.

A partition is named by its path below the table, such as ``year=2013/name=M%2FS``. Escaping is
Spark's ``ExternalCatalogUtils.escapePathName``: control characters, DEL and ``" # % ' * / : = ?
\\ { [ ] ^`` become ``%XX``; all else stays, even spaces and non-ASCII letters. Values are written
as Spark casts them to strings (timestamps in UTC). They are read back by the types of the table's
schema: no type is guessed from the text of a value.

pyarrow, pandas, DuckDB and Polars escape more than Spark does, and non-ASCII letters as the bytes
of their UTF-8: ``Z%C3%BCrich``. Spark itself never writes ``%80`` to ``%FF``, so here they always
mean UTF-8, although Spark reads them as two letters.

Null and the empty string both become ``__HIVE_DEFAULT_PARTITION__``, which reads back as null:
Spark does so, and a directory cannot distinguish them. A value that would change unnoticed is
refused instead: a value that *is* that name, a value whose directory Spark skips (it ends in
``._COPYING_``), and characters that S3's XML requests cannot carry.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pyarrow.types as pt

from ...errors import InvalidInputError, UnsupportedTypeError
from ..layout import COPYING, UNPARTITIONED, is_hidden
from .types import find_column

#: The directory value of null, and of the empty string.
NULL = "__HIVE_DEFAULT_PARTITION__"
_SPECIAL = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_ESCAPED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_BEYOND_ASCII = re.compile(r"%[89A-Fa-f][0-9A-Fa-f]")
_UNCARRIED = re.compile("[\ufffe\uffff]")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,80}(\.[0-9]{0,80})?|\.[0-9]{1,80})")
_FLOAT = re.compile(_DECIMAL.pattern + r"([eE][+-]?[0-9]{1,5})?")
_NOT_FINITE = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?")
#: Names of UTC among the time zones of Spark's sessions.
_UTC = re.compile(
    r"(Etc/)?(UTC|UCT|GMT|Zulu|Universal|Greenwich|GMT[+-]?0)|Z|(UTC|GMT|UT)?[+-]0{1,2}(:?00)?",
    re.IGNORECASE,
)


def escape(text: str) -> str:
    """Escape a text for use in a directory name."""
    return _SPECIAL.sub(lambda found: f"%{ord(found.group()):02X}", text)


def unescape(text: str) -> str:
    """Unescape a text: the inverse of :func:`escape`.

    ``%XX`` is a byte of UTF-8. A percent sign before other characters stands for itself.

    :raises InvalidInputError: the bytes are not UTF-8.
    """
    try:
        return _ESCAPED.sub(lambda found: bytes.fromhex(found[0].replace("%", "")).decode(), text)
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"The name {text[:300]!r} of a partition directory has escaped bytes that are not "
            "UTF-8.",
            remedy="Rename the directory: pyarrow, pandas, DuckDB and Polars escape the bytes of "
            "UTF-8 (Z%C3%BCrich), Spark leaves such letters as they are.",
        ) from error


def is_decodable(path: str) -> bool:
    """Return whether the escaped bytes in a partition's path are UTF-8."""
    try:
        unescape(path)
    except InvalidInputError:
        return False
    return True


def is_read_alike_by_spark(path: str) -> bool:
    """Return whether Spark's own reader finds the same values in a partition's path.

    Spark reads ``%C3%BC`` as two letters.
    """
    return _BEYOND_ASCII.search(path) is None


def is_utc(zone: str) -> bool:
    """Return whether a session of Spark with this time zone reads and writes instants in the names
    of partitions as they are meant: in UTC."""
    return _UTC.fullmatch(zone) is not None


def check_column(name: str) -> None:
    """Check that a column's name can be part of a partition directory's name.

    :raises InvalidInputError: the name is empty, readers skip its directories, or it has characters
        that a request cannot carry.
    """
    remedy = "Rename the column, or partition by another."
    if not name:
        raise InvalidInputError("A partition column without a name.", remedy=remedy)
    if is_hidden(f"{name}="):
        raise InvalidInputError(
            f"The partition column {name!r} makes directories that begin with '.', which Spark, "
            "Hive and Trino skip: its rows would not be seen.",
            remedy=remedy,
        )
    _check_characters(name, f"The partition column {name!r}")


def check_partition_type(column: str, kind: pa.DataType) -> None:
    """Check that values of a type can be directory names and be read back.

    :raises UnsupportedTypeError: binary, nested, null, duration, interval and extension types.
    """
    if pt.is_null(kind):
        raise UnsupportedTypeError(
            f"The column {column!r} cannot be a partition column of a new table: it has only nulls "
            "and no type (in Spark void, in Arrow null).",
            remedy=f"Give it the type that its values will have, in Spark by "
            f"frame.withColumn({column!r}, col({column!r}).cast('string')).",
        )
    if _codec(kind) is None:
        raise UnsupportedTypeError(
            f"The column {column!r} cannot be a partition column: its type is {kind}.",
            remedy="Partition by strings, numbers, booleans, dates, times or timestamps; "
            "add a column with the value as a string if need be.",
        )


def format_values(column: str, values: pa.Array) -> list[str]:
    """Return the escaped directory value of each element of a partition column's array.

    :param column: the column's name, for messages.
    :param values: an array of a type that :func:`check_partition_type` accepts.
    :raises InvalidInputError: a value that no directory can hold unchanged.
    """
    check_partition_type(column, values.type)
    formatter, _ = cast(_Codec, _codec(values.type))
    try:
        # Arrow finds the shortest digits of a 32-bit float; as_py() would widen it first.
        python = (values.cast(pa.string()) if pt.is_floating(values.type) else values).to_pylist()
    except (OverflowError, UnicodeDecodeError, ValueError) as error:
        raise InvalidInputError(
            f"A value of the partition column {column!r} is out of range: {error}.",
            remedy="Dates and timestamps of the years 1 to 9999 and valid UTF-8 can be "
            "partition values.",
        ) from error
    return [NULL if v is None else _value_directory(column, formatter(v)) for v in python]


def partition_path(values: Mapping[str, Any], schema: pa.Schema | None = None) -> str:
    """Return the canonical name of a partition: ``year=2013/day=1``.

    :param values: Python values by column, outermost first; empty for an unpartitioned table.
    :param schema: the table's schema, to whose types the values are converted; without it each
        value is written by its Python type.
    :raises InvalidInputError: a value that no directory can hold, or that is not of its column's
        type.
    """
    parts = []
    for column, value in values.items():
        check_column(column)
        kind = None if schema is None else _field_type(schema, column)
        text = format_values(column, _as_array(column, value, kind))[0]
        parts.append(f"{escape(column)}={text}")
    return "/".join(parts) or UNPARTITIONED


def parse_partition(path: str) -> list[tuple[str, str]]:
    """Split a partition's path, from any writer, into columns and raw values.

    :returns: unescaped column and *still escaped* value, outermost first; an empty list for
        :data:`.layout.UNPARTITIONED`. (Unescaped, null could not be distinguished from a string.)
    :raises InvalidInputError: not a path of ``column=value`` directories, or escaped bytes that
        are not UTF-8.
    """
    if path == UNPARTITIONED:
        return []
    found: list[tuple[str, str]] = []
    for part in path.split("/"):
        name, equals, raw = part.partition("=")
        if not equals or not raw:
            raise InvalidInputError(
                f"{path[:300]!r} does not name a partition: {part[:100]!r} is not column=value.",
                remedy=f"Name it like year=2013/day=1; null is written {NULL}.",
            )
        column = unescape(name)
        check_column(column)
        _check_characters(raw, f"The partition {path[:300]!r}")
        unescape(raw)
        found.append((column, raw))
    columns = [column for column, _ in found]
    if len(set(columns)) < len(columns):
        raise InvalidInputError(f"The partition {path[:300]!r} names a column twice.")
    return found


def as_spark_writes(path: str) -> str:
    """Name a partition as Spark names its directories; values may be escaped or plain.

    :raises InvalidInputError: see :func:`parse_partition`.
    """
    parts = [f"{escape(column)}={escape(unescape(raw))}" for column, raw in parse_partition(path)]
    return "/".join(parts) or UNPARTITIONED


def partition_values(path: str, schema: pa.Schema, partition_by: Sequence[str]) -> dict[str, Any]:
    """Return the values of a partition, as Python objects of the types in the table's schema.

    Other forms of a value are read as Spark reads them: ``month=01`` is 1.

    :raises InvalidInputError: other columns or another order than the table's, or a value that
        is not of its column's type.
    """
    found = parse_partition(path)
    if [column for column, _ in found] != list(partition_by):
        expected = "/".join(f"{escape(column)}=…" for column in partition_by)
        raise InvalidInputError(
            f"{path[:300]!r} is no partition of this table.",
            remedy=f"Its partitions are named {expected}."
            if expected
            else "It is not partitioned.",
        )
    return {column: _parse(column, raw, _field_type(schema, column)) for column, raw in found}


def normalise_partition(path: str, schema: pa.Schema, partition_by: Sequence[str]) -> str:
    """Return the canonical name of a partition that a user names.

    A user may write values escaped or plain (``ts=2013-01-01 00:00:00``), columns in any order and
    case, and slashes at both ends.

    :raises InvalidInputError: see :func:`partition_values`; also for a plain ``/`` in a value.
    """
    path = path.strip("/")
    named = parse_partition(path)
    raws = {find_column(column, partition_by): raw for column, raw in named}
    if raws.keys() == set(partition_by) and len(raws) == len(named):
        path = "/".join(f"{escape(column)}={raws[column]}" for column in partition_by) or path
    values = partition_values(path, schema, partition_by)
    return partition_path(values, schema)


def spelled_as_stored(path: str, schema: pa.Schema, partition_by: Sequence[str]) -> str:
    """Return a partition's name as the table stores it.

    A name that the table cannot have is returned as it is: a job that names it is refused later.
    """
    try:
        return normalise_partition(path, schema, partition_by)
    except InvalidInputError:
        return path


def _check_characters(text: str, what: str) -> None:
    """Refuse characters that UTF-8, or the XML of S3's requests (DeleteObjects), cannot carry."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{what} is not valid Unicode.") from error
    if _UNCARRIED.search(text):
        raise InvalidInputError(
            f"{what} contains U+FFFE or U+FFFF, which S3's XML requests cannot carry.",
            remedy="Remove these characters from the value.",
        )


def _value_directory(column: str, text: str) -> str:
    if not text:
        return NULL
    if text == NULL:
        raise InvalidInputError(
            f"The partition column {column!r} holds the text {NULL}, which would be read back "
            "as null.",
            remedy="Replace the text, by null if that is what it means.",
        )
    if text.endswith(COPYING):
        raise InvalidInputError(
            f"The partition column {column!r} holds the value {text[:200]!r}; Spark skips "
            f"directories that end in {COPYING}.",
            remedy="Change the value, or partition by another column.",
        )
    _check_characters(text, f"A value of the partition column {column!r}")
    return escape(text)


def _field_type(schema: pa.Schema, column: str) -> pa.DataType:
    index = schema.get_field_index(column)
    if index < 0:
        raise InvalidInputError(f"The schema has no column {column!r}, or has it twice.")
    return schema.field(index).type


def _as_array(column: str, value: Any, kind: pa.DataType | None) -> pa.Array:
    if isinstance(value, str):
        _check_characters(value, f"A value of the partition column {column!r}")
    if kind is None and value is None:
        kind = pa.string()
    if kind is None and isinstance(value, dt.datetime):
        kind = pa.timestamp("us", None if value.tzinfo is None else "UTC")
    try:
        return pa.array([value], kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{value!r} is not a value of the partition column {column!r}"
            f"{'' if kind is None else f', whose type is {kind}'}."
        ) from error


def _parse(column: str, raw: str, kind: pa.DataType) -> Any:
    check_partition_type(column, kind)
    if raw == NULL:
        return None
    text = unescape(raw)
    _, parser = cast(_Codec, _codec(kind))
    try:
        return pa.scalar(parser(text), kind).as_py()
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise InvalidInputError(
            f"{text[:200]!r} is not a value of the partition column {column!r}, whose type is "
            f"{kind}."
        ) from error


# -- values and their text, by type ------------------------------------------------------------

_Codec = tuple[Callable[[Any], str], Callable[[str], Any]]


def _codec(kind: pa.DataType) -> _Codec | None:
    """Return the writer and the parser for values of a type; ``None``: it is not supported."""
    if isinstance(kind, pa.BaseExtensionType):
        return None
    return next((codec for holds, codec in _CODECS if holds(kind)), None)


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return found


def _reader(pattern: re.Pattern[str], parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: parse(_match(pattern, text).group())


def _read_bool(text: str) -> bool:
    return {"true": True, "false": False}[_match(re.compile("true|false"), text.lower()).group()]


def _write_float(shortest: str) -> str:
    """Return a float's shortest digits in Java's form, as Spark has it: ``1.0E10``, ``NaN``.

    That form has no plus sign, which some URL decoders take for a space.
    """
    if shortest.lstrip("-") in ("nan", "inf"):
        return "NaN" if "nan" in shortest else shortest.replace("inf", "Infinity")
    number = Decimal(shortest)
    exponent = number.adjusted()
    if number == 0 or -3 <= exponent < 7:
        plain = format(number, "f")
        return plain if "." in plain else f"{plain}.0"
    sign, digits, _ = number.normalize().as_tuple()
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent}"


def _read_float(text: str) -> float:
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    number = float(_match(_FLOAT, text).group())
    if number in (float("inf"), float("-inf")):
        raise OverflowError(text)
    return number


def _read_float32(text: str) -> float:
    number = _read_float(text)
    if abs(number) != float("inf") and abs(pa.scalar(number, pa.float32()).as_py()) == float("inf"):
        raise OverflowError(text)
    return number


def _read_date(text: str) -> dt.date:
    year, month, day = _match(_DATE, text).groups()
    return dt.date(int(year), int(month), int(day))


def _trim(text: str) -> str:
    """Remove the zeros at the end of a fraction of a second."""
    return text.rstrip("0").removesuffix(".") if "." in text else text


def _write_timestamp(value: dt.datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return _trim(value.isoformat(sep=" "))


#: Parses timestamps in the form in which they are written; also with a ``T``, and with a zone (for
#: types that have one).
_read_timestamp = _reader(_TIMESTAMP, dt.datetime.fromisoformat)


def _read_zoned(text: str) -> dt.datetime:
    value = _read_timestamp(text)
    return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)


def _read_naive(text: str) -> dt.datetime:
    value = _read_timestamp(text)
    if value.tzinfo is not None:
        raise ValueError(text)
    return value


def _write_time(value: dt.time) -> str:
    return _trim(value.isoformat())


def _is_text(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)


def is_zoned(kind: pa.DataType) -> bool:
    """Return whether a type has points in time, which directories name in UTC; not local times."""
    return pt.is_timestamp(kind) and kind.tz is not None


_CODECS: tuple[tuple[Callable[[pa.DataType], bool], _Codec], ...] = (
    (_is_text, (str, str)),
    (pt.is_boolean, (lambda value: str(value).lower(), _read_bool)),
    (pt.is_integer, (str, _reader(_INTEGER, int))),
    (pt.is_float64, (_write_float, _read_float)),
    (pt.is_floating, (_write_float, _read_float32)),
    (pt.is_decimal, ("{:f}".format, _reader(_DECIMAL, Decimal))),
    (pt.is_date, (dt.date.isoformat, _read_date)),
    (is_zoned, (_write_timestamp, _read_zoned)),
    (pt.is_timestamp, (_write_timestamp, _read_naive)),
    (pt.is_time, (_write_time, _reader(_TIME, dt.time.fromisoformat))),
)
