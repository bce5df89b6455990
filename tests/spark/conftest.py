"""Tests here share one Spark session; those without it run without Java."""

from __future__ import annotations

from support.spark import spark

__all__ = ["spark"]
