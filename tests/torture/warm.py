"""Imported by the process that writers are forked from: botocore's description of S3 is read."""

import boto3

from zero_rename.committer.store.clients import S3Clients

S3Clients.derived_from(
    boto3.client("s3", region_name="us-east-1", aws_access_key_id="-", aws_secret_access_key="-")
)
