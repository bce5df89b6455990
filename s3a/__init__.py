"""Hadoop's S3A committers: configured, checked before a job, verified and recovered after it.

Works on settings and on what lies in the store; knows neither Spark nor Airflow.
"""
