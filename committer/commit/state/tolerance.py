"""Damage that is looked at rather than met: one record that cannot be read harms itself only."""

from __future__ import annotations

from typing import TypeVar

from ...errors import DamagedError, FastRootGoneError, StoreRefusedError, ZeroRenameError
from ...store.requests import Step

T = TypeVar("T")


def or_damage(step: Step[T]) -> Step[T | DamagedError]:
    """What a step returns, or the damage that it met, for who goes on with the other records."""
    try:
        return (yield from step)
    except DamagedError as error:
        return error


def undamaged(found: T | DamagedError) -> T:
    """What was found; the damage that was met is raised."""
    if isinstance(found, DamagedError):
        raise found
    return found


def or_error(step: Step[T]) -> Step[T | ZeroRenameError]:
    """What a step returns, or what it failed with, for who goes on with others."""
    try:
        return (yield from step)
    except ZeroRenameError as error:
        return error


def unless_gone(step: Step[T], otherwise: T) -> Step[T]:
    """What a step returns; something else where it asks a fast root that cannot be reached."""
    try:
        return (yield from step)
    except FastRootGoneError:
        return otherwise


def unless_denied(step: Step[T], otherwise: T) -> Step[T]:
    """Return what a step returns; something else where the rights for it are missing. For what lies
    beside or above the table that the rights are for."""
    try:
        return (yield from step)
    except StoreRefusedError as error:
        if not error.lacks_right:
            raise
        return otherwise
