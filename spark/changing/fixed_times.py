"""Current time in the expressions of a call: the same for all of its queries.

Spark takes a new time for each query, and a change of rows needs several: one for the report,
another for the rows. A condition with the current time could change between the two, so that a row
would be counted as one kind and written as another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ..session_settings import is_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOW = "timestamp_micros({})"
#: Functions without arguments, and the expression of each with the time in microseconds.
_FUNCTIONS = {
    "now": _NOW,
    "current_timestamp": _NOW,
    "localtimestamp": f"cast({_NOW} as timestamp_ntz)",
    "current_date": f"cast({_NOW} as date)",
    "curdate": f"cast({_NOW} as date)",
    # Spark 4.1 casts no timestamp to TIME.
    "current_time": f"make_time(hour({_NOW}), minute({_NOW}), extract(second from {_NOW}))",
    "unix_timestamp": f"unix_seconds({_NOW})",
}
#: Functions that Spark also knows without parentheses, if no column has the name.
_BARE = frozenset(("current_timestamp", "localtimestamp", "current_date", "current_time"))
COMMENTS = r"--[^\n]*|/\*.*?\*/"
#: Texts, quoted names, comments; then a name, with a dot before it and parentheses after it.
_PARTS = (
    r"{texts}|`[^`]*`|{comments}|(?P<before>\.\s*)?\b(?P<name>[a-z_]\w*)\b(?P<call>\s*\(\s*\))?"
)
_ESCAPED = r"r'[^']*'|r\"[^\"]*\"|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_PLAIN = r"'[^']*'|\"[^\"]*\""
#: Spark setting by which a backslash in a text is an ordinary character.
_IS_PLAIN = "spark.sql.parser.escapedStringLiterals"


def texts_of_sql(session: SparkSession) -> str:
    """Return the pattern of texts in expressions of a session's SQL."""
    return _PLAIN if is_on(session, _IS_PLAIN) else _ESCAPED


class FixedTimes:
    """Writer of the current time into the expressions of one call.

    The time is read from Spark once, and only if an expression uses it.
    """

    def __init__(self, session: SparkSession) -> None:
        parts = _PARTS.format(texts=texts_of_sql(session), comments=COMMENTS)
        self._parts = re.compile(parts, re.IGNORECASE | re.DOTALL)
        self._session = session
        self._time: int | None = None

    def of(self, text: str, columns: Collection[str]) -> str:
        """Write the time into an expression.

        :param columns: the table's columns: such a name is not a function, in any case.
        """
        own = {name.lower() for name in columns}
        return self._parts.sub(self._replaced(own), text)

    def _replaced(self, own: Collection[str]) -> Callable[[re.Match[str]], str]:
        def replaced(found: re.Match[str]) -> str:
            name = (found["name"] or "").lower()
            is_one = name in _FUNCTIONS if found["call"] else name in _BARE - set(own)
            if not is_one or found["before"]:
                return found[0]
            return _FUNCTIONS[name].replace("{}", str(self._microseconds()))

        return replaced

    def _microseconds(self) -> int:
        if self._time is None:
            query = "SELECT unix_micros(current_timestamp()) AS now"
            self._time = int(self._session.sql(query).collect()[0]["now"])
        return self._time
