"""Lazy reads of one state of a table: conditions, columns, and the libraries that take the rows."""
