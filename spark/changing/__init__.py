"""Change of a table's rows by Spark: merge, update, deletion."""
