"""Conflicts of runs that wrote one partition: their search, record and settlement."""
