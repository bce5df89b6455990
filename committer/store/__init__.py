"""The S3 calls the protocol makes, as data, the driver that carries them out with boto3, and the
store's weather: what went wrong, how long to bear it, how many requests to send at once."""
