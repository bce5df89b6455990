"""Loads by Hadoop's S3A committers from an Airflow task."""
