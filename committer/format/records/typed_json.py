"""Typed JSON: frozen dataclasses from and to JSON objects, as their type hints describe them.

A hint is ``str``, ``int``, ``bool``, ``float``, a ``StrEnum``, a dataclass, ``X | None``,
``tuple[X, ...]``, ``Mapping[str, X]`` or, for JSON that is kept without being interpreted,
``Mapping[str, Any]``. The :mod:`.marks` add what a hint cannot say. Reading is strict: no value is
converted, except an integer where the hint is ``float``. Members without a field are ignored.

No library does this: the records are part of the core, and the core travels to Spark executors as a
zip of Python files beside boto3 and pyarrow. See ``docs/dependencies.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from .marks import DEFAULTED, ENCLOSING, LEFT_OUT, Checked, Converted, Named

#: Deepest nesting of arrays and objects in JSON that is kept without being interpreted.
_DEEPEST = 32
#: Greatest integer. No count or size in a store reaches it, and every JSON reader holds it exactly.
_GREATEST = 2**53
T = TypeVar("T")


class Unfit(Exception):
    """Error for a JSON value that does not match its type hint.

    :param what: a predicate: ``is missing``.
    :param path: the member, dotted and with indices; ``""`` for the value itself.
    """

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what, path)
        self.what = what
        self.path = path

    def lies_in(self, name: str) -> None:
        """Extend the path by a member's name, or an index in brackets, of the enclosing value."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        self.path = f"{name}{dot}{self.path}"


def from_members(kind: type[T], members: Any) -> T:
    """Build a dataclass from a JSON object.

    :raises Unfit: the JSON does not match the dataclass's type hints.
    """
    return _form(kind).read(members, {})


def to_members(record: Any) -> dict[str, Any]:
    """Return the JSON object of a dataclass: the inverse of :func:`from_members`."""
    return _form(type(record)).write(record)


@dataclass(frozen=True)
class _Form:
    """Reader and writer of the values of one type hint.

    :param read: takes the JSON value and the fields of the enclosing record read so far.
    """

    read: Callable[[Any, Mapping[str, Any]], Any]
    write: Callable[[Any], Any] = lambda value: value


@cache
def _form(hint: Any) -> _Form:
    if get_origin(hint) is Annotated:
        return _marked(*get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return _optional(hint)
    if get_origin(hint) is tuple:
        return _array(*get_args(hint))
    if isinstance(get_origin(hint), type) and issubclass(get_origin(hint), Mapping):
        return _object(*get_args(hint))
    if is_dataclass(hint):
        return _record(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _choice(hint)
    if hint not in _SCALARS:
        raise TypeError(f"{hint}: no hint that can be read from JSON")
    return _SCALARS[hint]


# Scalars


def _text(value: Any, _: Any = None) -> str:
    if type(value) is not str:
        raise Unfit("is not a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Unfit("has half of a surrogate pair") from error
    return value


def _whole(value: Any, _: Any = None) -> int:
    if type(value) is not int:  # A bool is an int to isinstance().
        raise Unfit("is not an integer")
    if abs(value) > _GREATEST:
        raise Unfit("is greater than any number that a store could have reached")
    return value


def _flag(value: Any, _: Any = None) -> bool:
    if type(value) is not bool:
        raise Unfit("is not true or false")
    return value


def _number(value: Any, _: Any = None) -> float:
    if type(value) not in (int, float):
        raise Unfit("is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Unfit("is not a finite number")
    return number


_SCALARS = {str: _Form(_text), int: _Form(_whole), bool: _Form(_flag), float: _Form(_number)}


def _choice(kind: type[StrEnum]) -> _Form:
    def read(value: Any, _: Any) -> StrEnum:
        text = _text(value)
        try:
            return kind(text)
        except ValueError as error:
            raise Unfit(f"is {text!r}, not a {kind.__name__}") from error

    return _Form(read, lambda value: value.value)


# Compound types


def _optional(hint: Any) -> _Form:
    kind, *others = (arg for arg in get_args(hint) if arg is not NoneType)
    if others:
        raise TypeError(f"{hint}: one type and None")
    form = _form(kind)

    def write(value: Any) -> Any:
        return None if value is None else form.write(value)

    return _Form(lambda value, outer: None if value is None else form.read(value, outer), write)


def _marked(hint: Any, *marks: Any) -> _Form:
    converted = next((mark for mark in marks if isinstance(mark, Converted)), None)
    form = _converted(converted) if converted else _form(hint)
    checks = [mark for mark in marks if isinstance(mark, Checked)]
    if not checks:
        return form

    def read(value: Any, outer: Mapping[str, Any]) -> Any:
        found = form.read(value, outer)
        for check in checks:
            if not check.holds(found):
                raise Unfit(check.complaint)
        return found

    return _Form(read, form.write)


def _converted(mark: Converted) -> _Form:
    def read(value: Any, _: Any) -> Any:
        try:
            return mark.read(value)
        except ValueError as error:
            raise Unfit(f"cannot be read: {error}") from error

    return _Form(read, mark.write)


def _array(kind: Any, *rest: Any) -> _Form:
    if rest != (...,):
        raise TypeError("a tuple of any length: tuple[X, ...]")
    form = _form(kind)

    def read(value: Any, outer: Mapping[str, Any]) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Unfit("is not a list")
        found = []
        for item in value:
            try:
                found.append(form.read(item, outer))
            except Unfit as unfit:
                unfit.lies_in(f"[{len(found)}]")
                raise
        return tuple(found)

    return _Form(read, lambda values: [form.write(value) for value in values])


def _object(name: Any, kind: Any) -> _Form:
    if name is not str:
        raise TypeError("a mapping of strings: Mapping[str, X]")
    form = _Form(_kept) if kind is Any else _form(kind)

    def read(value: Any, outer: Mapping[str, Any]) -> dict[str, Any]:
        if type(value) is not dict:
            raise Unfit("is not an object")
        found = {}
        for member, item in value.items():
            try:
                found[_text(member)] = form.read(item, outer)
            except Unfit as unfit:
                unfit.lies_in(member)
                raise
        return found

    return _Form(read, lambda values: {n: form.write(value) for n, value in values.items()})


def _kept(value: Any, _: Any, deep: int = 1) -> Any:
    """Check that a JSON value of any kind can be written again, and return it."""
    if deep > _DEEPEST:
        raise Unfit(f"is nested more than {_DEEPEST} deep")
    if isinstance(value, dict):
        return {_text(name): _kept(item, _, deep + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_kept(item, _, deep + 1) for item in value]
    if isinstance(value, float):
        return _number(value)
    return _text(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class _Member:
    """One field of a dataclass.

    :param name: the JSON member's name; ``""`` for a field that takes its value from the enclosing
        record.
    :param may_lack: the member may be missing or null; the field then has its default.
    :param left_out: the member is not written while the field has its ``default``.
    """

    field: str
    name: str
    form: _Form
    may_lack: bool
    is_nullable: bool
    left_out: bool
    default: Any

    @staticmethod
    def of(field: Field[Any], hint: Any) -> _Member:
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        bare = get_args(hint)[0] if marks else hint
        name = next((mark.member for mark in marks if isinstance(mark, Named)), field.name)
        return _Member(
            field=field.name,
            name="" if ENCLOSING in marks else name,
            form=_form(hint),
            may_lack=DEFAULTED in marks or LEFT_OUT in marks,
            is_nullable=get_origin(bare) in (Union, UnionType),
            left_out=LEFT_OUT in marks,
            default=field.default if field.default_factory is MISSING else field.default_factory(),
        )

    def read(self, members: Mapping[str, Any], found: dict[str, Any]) -> None:
        """Read the field's value and add it to ``found``."""
        given = members.get(self.name)
        if given is None and not self.is_nullable:
            if self.may_lack:
                return
            raise Unfit("is missing", self.name)
        try:
            found[self.field] = self.form.read(given, found)
        except Unfit as unfit:
            unfit.lies_in(self.name)
            raise


def _record(kind: Any) -> _Form:
    hints = get_type_hints(kind, include_extras=True)
    every = [_Member.of(field, hints[field.name]) for field in fields(kind)]
    enclosing = [member.field for member in every if not member.name]
    members = [member for member in every if member.name]

    def read(value: Any, outer: Mapping[str, Any]) -> Any:
        if type(value) is not dict:
            raise Unfit("is not an object")
        found = {name: outer[name] for name in enclosing}
        for member in members:
            member.read(value, found)
        return kind(**found)

    def write(record: Any) -> dict[str, Any]:
        values = ((member, getattr(record, member.field)) for member in members)
        return {
            member.name: member.form.write(value)
            for member, value in values
            if not (member.left_out and value == member.default)
        }

    return _Form(read, write)
