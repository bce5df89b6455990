"""``make demo``: a month and three days of flights through Airflow and Spark into S3.

Not part of the distribution. ``scenario`` is the story; the other modules are its parts, one
noun each.
"""
