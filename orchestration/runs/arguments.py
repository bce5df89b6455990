"""Parsers of tasks' arguments, from texts and from the values of a native rendering.

Airflow renders a template to a text. With ``render_template_as_native_obj`` it reads that text as
a Python literal: ``"20251231"`` becomes a number, ``"['a']"`` a list, ``"None"`` nothing. Each
parser here takes both forms, and returns the same value for both or refuses.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, TypeGuard

from ...committer.errors import InvalidInputError

if TYPE_CHECKING:
    from ...committer.upkeep.conflicts.settlement_policy import SettlementPolicy

#: Reads an argument, from its name (for the error) and its value.
Parser = Callable[[str, object], Any]
#: Airflow's words for booleans (``airflow.utils.strings.TRUE_LIKE_VALUES``) and their opposites.
_TRUE = frozenset(("on", "t", "true", "y", "yes", "1"))
_FALSE = frozenset(("off", "f", "false", "n", "no", "0"))
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
#: Times of digits alone, by their number of digits.
_COMPACT = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}|\d{8}", re.ASCII)
#: Unix seconds: 9 digits from 1973 on, 10 digits until 2286. More digits are milliseconds.
_SECONDS = re.compile(r"\d{9,10}(\.\d*)?", re.ASCII)
#: The first year of digits that are read as a date and an hour. With an earlier year they are Unix
#: seconds (1712010100 is a second of 2024).
_FIRST_YEAR = 1970
#: Names of secrets. A message does not show a text with such a name.
_SECRET = re.compile(r"secret|passw|pwd|token|key|credential", re.IGNORECASE)


def invalid(name: str, given: object, why: str, remedy: str) -> InvalidInputError:
    """Build the error for an invalid argument.

    :param why: what is wrong with it, such as ``not a time``.
    """
    return InvalidInputError(
        f"Invalid {name}={_shown(given)}: {why}. Nothing was read or written.", remedy=remedy
    )


def read_text(name: str, given: object) -> str:
    """Return a text.

    A whole number becomes its digits, since native rendering makes ``"4"`` a number. Native
    rendering keeps a date, a time or a duration; each becomes the text that Jinja writes for it.

    :raises InvalidInputError: anything else. A fraction may have lost digits (``4.10`` is rendered
        as 4.1), and a boolean or ``None`` cannot be a name.
    """
    if isinstance(given, str):
        return str(given)
    if isinstance(given, int | date | timedelta) and not isinstance(given, bool):
        return str(given)
    lost = " The digits of a number may be lost by then: quote it, \"'{{ … }}'\"."
    raise invalid(
        name,
        given,
        f"not a text, but {_kind(given)}",
        "See what its template renders to, or what the other task returned."
        + (lost if isinstance(given, float) else ""),
    )


def read_word(name: str, given: object) -> str:
    """Return a word of a command line, or the value of a setting.

    A number or a boolean becomes the text that Jinja writes for it.

    :raises InvalidInputError: neither these nor a text.
    """
    if isinstance(given, bool | float) and (isinstance(given, bool) or math.isfinite(given)):
        return str(given)
    return read_text(name, given)


def read_words(name: str, given: object) -> list[str]:
    """Return the words of a list, or of a text that is a list: ``['--day', 7]``.

    :raises InvalidInputError: anything else.
    """
    return [read_word(f"{name}[{number}]", it) for number, it in enumerate(read_list(name, given))]


def read_settings(name: str, given: object) -> dict[str, str]:
    """Return texts by name, from a dictionary or from a text that is one.

    :raises InvalidInputError: anything else.
    """
    found = read_mapping(name, given)
    return {key: read_word(f"{name}[{key!r}]", value) for key, value in found.items()}


def read_mapping(name: str, given: object) -> dict[str, Any]:
    """Return values by name, from a dictionary or from a text that is one.

    :raises InvalidInputError: anything else.
    """
    found = _literal(given)
    if not isinstance(found, Mapping):
        raise invalid(name, given, "not a dictionary", "Give such as {'name': 'value'}.")
    return {read_text(f"a name in {name}", key): value for key, value in found.items()}


def read_versions(name: str, given: object) -> dict[str, str]:
    """Return code versions by table.

    :raises InvalidInputError: anything else.
    """
    found = read_mapping(name, given)
    return {key: read_text(f"{name}[{key!r}]", value) for key, value in found.items()}


def read_policy(name: str, given: object) -> SettlementPolicy:
    """Return a policy for conflicts of runs, also from the text that a template made of a mapping.

    :raises InvalidInputError: anything else.
    """
    from ...committer.upkeep.conflicts.settlement_policy import SettlementPolicy

    is_text = isinstance(given, str) and given.lstrip().startswith("{")
    return SettlementPolicy.parse(read_mapping(name, given) if is_text else given)


def read_conflicts(name: str, given: object) -> SettlementPolicy | str:
    """Return how maintenance treats conflicts of runs: ``report``, ``fail`` or a policy.

    :raises InvalidInputError: anything else.
    """
    word = given.strip() if isinstance(given, str) else ""
    if word in ("report", "fail"):
        return word
    try:
        return read_policy(name, given)
    except InvalidInputError as error:
        error.remedy = f"Give report, or fail, or a policy. {error.remedy}"
        raise


def read_names(
    name: str, given: object, separator: str | None, kind: str, example: str
) -> tuple[str, ...]:
    """Return the names in an argument, each once.

    The argument is a list, a text, or the text that a template made of a list.

    :param separator: between names in a text; ``None``: a text is one name.
    :param kind: a noun for the names, for the error, such as ``tables``.
    :param example: for the error, such as ``names such as flights``.
    :raises InvalidInputError: anything else.
    """
    found: object = given
    if isinstance(given, str) and given.lstrip().startswith("["):
        found = _literal(given)
    elif isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool)):
        texts = str(given).split(separator) if separator else [str(given)]
        found = [text.strip() for text in texts if text.strip() or not separator]
    if not _is_list(found):
        raise invalid(
            name, given, f"neither a list of {kind} nor one", f"Give {example}, or a list of them."
        )
    texts = (read_text(f"{name}[{number}]", it) for number, it in enumerate(found))
    return tuple(dict.fromkeys(texts))


def read_flag(name: str, given: object) -> bool:
    """Return a boolean, also from one of Airflow's words for it, in upper or lower case.

    True: ``on``, ``t``, ``true``, ``y``, ``yes``, ``1``. False: ``off``, ``f``, ``false``, ``n``,
    ``no``, ``0``.

    :raises InvalidInputError: anything else.
    """
    if isinstance(given, bool):
        return given
    word = str(given).strip().lower() if isinstance(given, str | int) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise invalid(name, given, "neither true nor false", "Give true or false.")


def read_whole(name: str, given: object) -> int:
    """Return a whole number of at least 0.

    :raises InvalidInputError: anything else.
    """
    found = -1
    if isinstance(given, str) and _WHOLE.fullmatch(given.strip()):
        found = int(given)
    elif isinstance(given, int) and not isinstance(given, bool):
        found = given
    elif isinstance(given, float) and math.isfinite(given) and given == int(given):
        found = int(given)
    if found < 0:
        raise invalid(name, given, "not a whole number of at least 0", "Give such as 0 or 100.")
    return found


def read_index(name: str, given: object) -> int:
    """Return the map index of a task; -1 for a task that is not mapped.

    :raises InvalidInputError: anything else.
    """
    remedy = "Give a whole number, or a template that makes one."
    return _whole_or_none(name, given, "not the index of a mapped task", remedy)


def read_version(name: str, given: object) -> int:
    """Return a version of a table or a partition; -1 is the version before a log's first entry.

    :raises InvalidInputError: anything else.
    """
    remedy = "Give such as 12, 0, or -1 for any entry of a Delta table's log."
    return _whole_or_none(name, given, "not a version", remedy)


def _whole_or_none(name: str, given: object, problem: str, remedy: str) -> int:
    """Return a whole number of at least 0, or -1.

    :raises InvalidInputError: anything else.
    """
    if given == -1 or (isinstance(given, str) and given.strip() == "-1"):
        return -1
    try:
        return read_whole(name, given)
    except InvalidInputError:
        raise invalid(name, given, problem, remedy) from None


def read_seconds(name: str, given: object) -> float:
    """Return a duration in seconds, from a number of seconds, a timedelta, or a text.

    A text is such as ``3600``, ``1:00:00``, ``2 days, 0:00:00`` or ``PT1H``.

    :raises InvalidInputError: anything else, and a negative duration.
    """
    found = math.nan
    try:
        if isinstance(given, timedelta):
            found = given.total_seconds()
        elif isinstance(given, int | float) and not isinstance(given, bool):
            found = float(given)
        elif isinstance(given, str):
            found = _seconds_in(given.strip())
    except (ValueError, OverflowError):
        found = math.nan
    if not 0 <= found < math.inf:
        raise invalid(
            name, given, "not a duration", "Give seconds, a timedelta, or a text such as PT1H."
        )
    return found


def read_time(name: str, given: object, zone: tzinfo = UTC) -> datetime:
    """Return a time.

    The argument is a datetime, a date, a text in ISO 8601, digits such as ``20251231``,
    ``2025123105`` and ``202512310530``, or Unix seconds of 9 or 10 digits. Ten digits that make a
    date and an hour from 1970 on are read as a date and an hour, not as Unix seconds.

    :param zone: the time zone of a time that names none.
    :raises InvalidInputError: anything else.
    """
    try:
        found = _time_in(given)
    except (TypeError, ValueError, OverflowError, OSError):
        found = None
    if found is None:
        raise invalid(
            name,
            given,
            "not a time",
            "Give it as 2013-02-01, 2013-02-01T05:00:00+00:00, 20130201 or a datetime.",
        )
    return found if found.tzinfo is not None else found.replace(tzinfo=zone)


def is_whole_day(given: object) -> bool:
    """Return whether an argument of :func:`read_time` is a whole day, without a time of the day."""
    if isinstance(given, datetime):
        return False
    return isinstance(given, date) or _DAY.fullmatch(_digits(given)) is not None


def read_list(name: str, given: object) -> list[Any]:
    """Return a list, from a list or a tuple, or from a text that is one.

    :raises InvalidInputError: anything else.
    """
    found = _literal(given)
    if not _is_list(found):
        raise invalid(name, given, "not a list", "Give a list, such as ['a', 'b'].")
    return list(found)


def read_request_of_texts(name: str, given: object) -> Any:
    """Return a dictionary or a list, with all values at any depth as texts (:func:`read_word`).

    :raises InvalidInputError: anything else.
    """
    found = _literal(given)
    if isinstance(found, Mapping):
        return {key: _texts_within(f"{name}[{key!r}]", it) for key, it in found.items()}
    return [
        _texts_within(f"{name}[{number}]", it) for number, it in enumerate(read_list(name, found))
    ]


def read_any(name: str, given: object) -> object:
    """Return the value unchanged: another provider's operator checks it."""
    return given


def _time_in(given: object) -> datetime | None:
    if isinstance(given, datetime):
        # A plain datetime: pendulum's own formatting gives '%-d' another meaning.
        return datetime.fromisoformat(given.isoformat())
    if isinstance(given, date):
        return datetime(given.year, given.month, given.day)
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return None
    text = _digits(given)
    if text.isdecimal() and len(text) in _COMPACT:
        try:
            found = datetime.strptime(text, _COMPACT[len(text)])
        except ValueError:
            found = None
        if found is not None and (found.year >= _FIRST_YEAR or len(text) == 8):
            return found
    if _SECONDS.fullmatch(text):
        return datetime.fromtimestamp(float(text), UTC)
    return datetime.fromisoformat(text) if isinstance(given, str) and not text.isdecimal() else None


def _digits(given: object) -> str:
    """Return the text of a value; a native rendering may have made a number of the text."""
    whole = isinstance(given, float) and given.is_integer()
    return str(int(given) if isinstance(given, float) and whole else given).strip()


def _seconds_in(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        # Imported on use: Airflow and Dagster have pydantic, and DAG files without a duration do
        # not wait for its import.
        from pydantic import TypeAdapter  # Its ValidationError is a ValueError.

        return TypeAdapter(timedelta).validate_python(text).total_seconds()


def _literal(given: object) -> object:
    """Return the list or dictionary that a text represents; any other value unchanged."""
    if not isinstance(given, str) or not given.lstrip().startswith(("[", "(", "{")):
        return given
    for read in (ast.literal_eval, json.loads):
        try:
            return read(given.strip())
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
    return given


def _is_list(given: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(given, Sequence) and not isinstance(given, str | bytes | bytearray)


def _texts_within(name: str, given: object) -> Any:
    if isinstance(given, Mapping) or _is_list(given):
        return read_request_of_texts(name, given)
    return read_word(name, given)


def _kind(given: object) -> str:
    return "nothing" if given is None else f"of type {type(given).__name__}"


def _shown(given: object) -> str:
    """Return an argument for the text of an error: shortened; if it may hold a secret, its type."""
    text = repr(given)
    if _SECRET.search(text):
        return f"<{type(given).__name__}>"
    return text if len(text) <= 200 else f"{text[:200]}…"
