"""Local states of suspended generators as hashable values.

Two generators stopped at the same instruction with the same local variables *and the same
evaluation stack* (loops keep their iterators there) go on in the same way. The garbage
collector's view of a generator shows both.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import lru_cache, partial
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import pyarrow as pa

from zero_rename.committer.store.requests import Request

#: Types whose instances are the same throughout a simulation, or do not steer a participant.
_CONSTANT = {"Context", "Ids", "Count", "TableRoot", "StoreFacts", "_Questions"}
#: Types whose instances change while a step runs.
_CHANGING = {"UploadJudge", "UploadSweep", "_UploadTable"}
_PLAIN = (str, bytes, int, float, range, Enum)
_ATOMS = {str, bytes, int, float, bool, type(None)}
_RECORDS_KEPT = 100_000
_ASKS = Request.__iter__.__code__
#: Records by identity; each is held on to, so that its identity stays its own.
_records: dict[int, tuple[Any, Any, bool]] = {}
#: How values of each type met are frozen.
_ways: dict[type, Callable[[Any], Any]] = {}


class Moment(float):
    """A time by a participant's own clock, so that it can be told from other numbers."""


@dataclass
class _Met:
    """What was met while a value was frozen."""

    time: bool = False


_met = _Met()


def frozen(value: Any) -> tuple[Any, bool]:
    """A hashable value that is equal for equal states, and whether there is a :class:`Moment` in
    it.

    :raises TypeError: something whose state cannot be told.
    """
    _met.time = False
    return freeze(value), _met.time


def freeze(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    found = _ways.get(kind)
    if found is None:
        found = _ways[kind] = _way(kind)
    return found(value)


def _way(kind: type) -> Callable[[Any], Any]:
    """How values of a type are frozen."""
    name = kind.__name__
    if kind is Moment:
        return _freeze_moment
    if issubclass(kind, _PLAIN):
        return lambda value: value
    if name in _CONSTANT:
        return lambda value: name
    if issubclass(kind, list | tuple):
        return lambda value: (name, *map(freeze, value))
    if issubclass(kind, dict):
        return lambda value: (name, *((freeze(k), freeze(it)) for k, it in value.items()))
    if issubclass(kind, set | frozenset):
        return lambda value: (name, *sorted(map(freeze, value), key=repr))
    if kind is GeneratorType:
        return _freeze_generator
    if name in _CHANGING:
        return lambda value: (name, freeze(vars(value)))
    if is_dataclass(kind):
        return partial(_freeze_record, name)
    if kind is CellType:
        return _freeze_cell
    if issubclass(kind, BaseException):
        return lambda value: (name, freeze(value.args))
    return partial(_freeze_machinery, name)


def _freeze_moment(value: Moment) -> Moment:
    _met.time = True
    return value


def _freeze_record(name: str, value: Any) -> Any:
    """A dataclass by its fields. Those of the committer are frozen, so each is looked at once."""
    known = _records.get(id(value))
    if known is not None:
        _met.time |= known[2]
        return known[1]
    before, _met.time = _met.time, False
    held = (name, *(freeze(getattr(value, field)) for field in _field_names(type(value))))
    if len(_records) > _RECORDS_KEPT:
        _records.clear()
    _records[id(value)] = (value, held, _met.time)
    _met.time |= before
    return held


@lru_cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _freeze_generator(generator: GeneratorType) -> Any:
    frame = generator.gi_frame
    if frame is None:
        return ("finished",)
    # What a step asks for follows from the step itself. The frame object appears among the
    # referents once somebody has asked for it.
    held = [
        freeze(it)
        for it in gc.get_referents(generator)
        if type(it) is not FrameType and not (type(it) is GeneratorType and it.gi_code is _ASKS)
    ]
    return (generator.gi_code.co_qualname, frame.f_lasti, *held)


def _freeze_cell(value: CellType) -> Any:
    try:
        return ("cell", freeze(value.cell_contents))
    except ValueError:
        return ("empty cell",)


def _freeze_machinery(name: str, value: Any) -> Any:
    if isinstance(value, FunctionType):
        cells = value.__closure__ or ()
        return (value.__qualname__, *map(freeze, cells))
    if isinstance(value, partial):
        return (name, freeze(value.func), freeze(value.args), freeze(value.keywords))
    if isinstance(value, MethodType | BuiltinFunctionType):
        owner = value.__self__
        return (value.__name__, None if isinstance(owner, ModuleType) else freeze(owner))
    if isinstance(value, CodeType | type | ModuleType | MethodDescriptorType):
        return getattr(value, "__qualname__", None) or getattr(value, "co_qualname", name)
    if isinstance(value, pa.Schema | pa.DataType):
        return str(value)
    if name.endswith("iterator") or name in ("enumerate", "zip", "map", "filter", "reversed"):
        return (name, freeze(value.__reduce__()[1:]))
    raise TypeError(f"the state of a {name} cannot be told: {value!r}")
