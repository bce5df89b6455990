"""Examples to copy: DAGs, and the Spark application they submit."""
