"""Lazy reads of one state of a table: conditions, columns, and the libraries that get the rows."""
