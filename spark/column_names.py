"""Columns' names in Spark's SQL."""


def quoted(name: str) -> str:
    """Quote a column's name for Spark's SQL."""
    return f"`{name.replace('`', '``')}`"
