"""Writes by Hadoop's S3A committers from inside a Spark application."""
