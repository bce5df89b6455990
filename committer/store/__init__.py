"""The S3 calls the protocol makes, as data, and the driver that carries them out with boto3."""
