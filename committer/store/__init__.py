"""S3 requests of the protocol as data, the driver that carries them out with boto3, and failures.

Failures of the store: their meaning, how long requests are retried, how many are sent at once.
"""
