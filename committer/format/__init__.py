"""What lies in the bucket: names, records, columns, files; read without trust."""
