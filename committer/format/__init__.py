"""Contents of the bucket: names, records, columns, files; read without trust."""
