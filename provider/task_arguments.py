"""Arguments of a task that Airflow renders; each kind has a parser."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping
from typing import Any, ClassVar

from ..orchestration.runs.arguments import Parser, invalid
from ..orchestration.templates import is_known
from .failures import dated


class TaskArguments:
    """Base of this package's operators and sensors: it reads their rendered arguments.

    Airflow renders templates to texts or, with ``render_template_as_native_obj``, to Python
    literals. So every argument is read by the parser of its kind, which takes both. Arguments that
    are no templates are also read while a DAG file is parsed, so that a wrong value breaks the
    import.
    """

    #: Parsers by argument, in addition to those of the base classes.
    parsers: ClassVar[Mapping[str, Parser]] = {}
    #: Parsers of arguments that count as left out if their template has no value.
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
        """Read the arguments that are no templates, and keep all as they were written.

        It is called when the arguments are set.

        :raises InvalidInputError: an invalid argument.
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
        """Read all arguments after they were rendered.

        :raises InvalidInputError: names the first invalid argument, and its value.
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

    def _do_render_template_fields(
        self, parent: Any, template_fields: Any, context: Any, *more: Any, **named: Any
    ) -> None:
        """Render the templates: Airflow calls this for a mapped task, too
        (``airflow.sdk.definitions.mappedoperator``, render_template_fields).

        :raises AirflowFailException: one asks for the date of a run that has none.
        """
        made: Any = super()
        with dated(context):
            made._do_render_template_fields(parent, template_fields, context, *more, **named)

    def _is_file(self, written: object) -> bool:
        endings = tuple(getattr(self, "template_ext", None) or ())
        return bool(endings) and isinstance(written, str) and written.endswith(endings)


def _is_nothing(value: object, written: object) -> bool:
    """Return whether a template was rendered to ``None``, or to the text ``None``."""
    if isinstance(value, str):
        return value.strip() == "None" and not is_known(written)
    return value is None


def _texts_of(value: object) -> Any:
    """Copy an argument with its texts; ``...`` stands for any other value in it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return [_texts_of(it) for it in value]
    if isinstance(value, dict):
        return {key: _texts_of(it) for key, it in value.items()}
    return ...


def _as_written(value: object, written: object) -> object:
    """Return a rendered argument in which texts that are no templates are as they were written.

    The native rendering makes the number 4.1 of the text ``"4.10"``, even if it is no template.

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
    """Return whether the native rendering makes this value of a text."""
    if isinstance(value, str) or not written:
        return False
    try:
        return bool(literal_eval(written) == value)
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError):
        return False
