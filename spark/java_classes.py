"""Classes of Spark's JVM by their full names."""

from __future__ import annotations

from typing import Any


def java_class(jvm: Any, name: str) -> Any:
    """Return a class of the JVM by its full name.

    ``jvm.org.apache.…`` asks for a class of each of its packages' names, for which the JVM looks
    into all jars: about 2 ms a chain. A full name is one quick question.

    :param jvm: py4j's view of the JVM.
    :raises py4j.protocol.Py4JError: the JVM has no such class, or the platform does not show it.
    """
    return getattr(jvm, name)
