"""Load data into S3 tables from Airflow and PySpark, committed without renames."""
