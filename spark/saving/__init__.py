"""Writes of data frames: the tasks of ``save()``, and the code that the data source shares."""
