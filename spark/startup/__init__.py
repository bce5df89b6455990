"""Spark's start: launch options, class archive, and the checks before it."""
