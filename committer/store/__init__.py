"""The S3 calls the protocol makes, as data, the driver that carries them out with boto3, and the
store's failures: what went wrong, how long requests are retried, how many are sent at once."""
