"""Tolerance of errors of single steps: a record that cannot be read affects only itself."""

from __future__ import annotations

from typing import TypeVar

from ...errors import DamagedError, FastRootGoneError, StoreRefusedError, ZeroRenameError
from ...store.requests import Step

T = TypeVar("T")


def or_damage(step: Step[T]) -> Step[T | DamagedError]:
    """Return the step's result, or the DamagedError that it raised."""
    try:
        return (yield from step)
    except DamagedError as error:
        return error


def undamaged(found: T | DamagedError) -> T:
    """Return a result of :func:`or_damage`, or raise its error."""
    if isinstance(found, DamagedError):
        raise found
    return found


def or_error(step: Step[T]) -> Step[T | ZeroRenameError]:
    """Return the step's result, or the error of this package that it raised."""
    try:
        return (yield from step)
    except ZeroRenameError as error:
        return error


def unless_gone(step: Step[T], otherwise: T) -> Step[T]:
    """Return the step's result, or another value if it needs a fast root that cannot be reached."""
    try:
        return (yield from step)
    except FastRootGoneError:
        return otherwise


def unless_denied(step: Step[T], otherwise: T) -> Step[T]:
    """Return the step's result, or another value if the rights for it are missing.

    For steps outside of the table that the rights are for: beside or above it.
    """
    try:
        return (yield from step)
    except StoreRefusedError as error:
        if not error.lacks_right:
            raise
        return otherwise
