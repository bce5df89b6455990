"""Hadoop's S3A committers: configured, checked before a job, verified and recovered after it.

Works on settings and on objects in the store. Imports neither Spark nor Airflow.
"""
