"""Arguments of a task that Airflow renders, each read by the parser of its kind."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping
from typing import Any, ClassVar

from ..orchestration.runs.arguments import Parser, invalid
from ..orchestration.templates import is_known


class TaskArguments:
    """Base of our operators and sensors: it reads their arguments once they are rendered.

    Airflow renders to texts, or with ``render_template_as_native_obj`` to what these are as
    literals of Python. Every argument of a task is therefore read by the parser of its kind, which
    takes both. While a DAG file is parsed, what is no template is read too, so that a wrong value
    breaks the import.
    """

    #: Parsers by argument. Those of the bases count besides.
    parsers: ClassVar[Mapping[str, Parser]] = {}
    #: The same of arguments that count as left out where their template has no value.
    optional_parsers: ClassVar[Mapping[str, Parser]] = {}
    _unrendered: Mapping[str, Any]

    @classmethod
    def all_parsers(cls, *kinds: str) -> dict[str, Parser]:
        """Return the parsers of this class and of its bases, by argument."""
        found: dict[str, Parser] = {}
        for base in reversed(cls.__mro__):
            for kind in kinds or ("optional_parsers", "parsers"):
                found |= vars(base).get(kind, {})
        return found

    def note_arguments(self) -> None:
        """Read what no template hides, and note how all are written. Called when the arguments are
        set.

        :raises InvalidInputError: an argument that cannot be right.
        """
        written: dict[str, Any] = {}
        for name, parse in self.all_parsers().items():
            value = getattr(self, name, None)
            if value is None:
                continue
            if is_known(value) and not self._is_file(value):
                value = parse(name, value)
                setattr(self, name, value)
            written[name] = _texts_of(value)
        self._unrendered = written

    def read_arguments(self) -> None:
        """Read all arguments, which are rendered by now.

        :raises InvalidInputError: names the first argument that cannot be right, and its value.
        """
        optional = self.all_parsers("optional_parsers")
        for name, parse in self.all_parsers().items():
            value, written = getattr(self, name, None), self._unrendered.get(name)
            if not self._is_file(written):
                value = _as_written(value, written)
            left_out = value is None and name in optional
            if written is not None and not left_out and _is_nothing(value, written):
                raise invalid(
                    name,
                    value,
                    "its template has no value",
                    "See what the template renders to. To leave the argument out, do not give it.",
                )
            if value is not None:
                setattr(self, name, parse(name, value))

    def _is_file(self, written: object) -> bool:
        endings = tuple(getattr(self, "template_ext", None) or ())
        return bool(endings) and isinstance(written, str) and written.endswith(endings)


def _is_nothing(value: object, written: object) -> bool:
    """Whether a template was rendered to nothing, or to its name."""
    if isinstance(value, str):
        return value.strip() == "None" and not is_known(written)
    return value is None


def _texts_of(value: object) -> Any:
    """The texts in an argument, in the place where they are; of all else that it is there."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return [_texts_of(it) for it in value]
    if isinstance(value, dict):
        return {key: _texts_of(it) for key, it in value.items()}
    return ...


def _as_written(value: object, written: object) -> object:
    """A rendered argument, but that a text which is no template is what was written: the native
    rendering makes the number 4.1 of the text ``"4.10"``.

    :param written: :func:`_texts_of` the argument before it was rendered.
    """
    if isinstance(written, str):
        return written if is_known(written) and _is_literal(value, written) else value
    if isinstance(written, list) and isinstance(value, list | tuple) and len(written) == len(value):
        return [_as_written(*pair) for pair in zip(value, written, strict=True)]
    if isinstance(written, dict) and isinstance(value, dict):
        return {key: _as_written(it, written.get(key)) for key, it in value.items()}
    return value


def _is_literal(value: object, written: str) -> bool:
    """Whether a value is what the native rendering makes of a text."""
    if isinstance(value, str) or not written:
        return False
    try:
        return bool(literal_eval(written) == value)
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError):
        return False
