"""Layouts of tables that are kept in a log: how their files are written, shown and removed."""
