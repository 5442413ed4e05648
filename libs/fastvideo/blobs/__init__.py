"""Content-addressed bytes in a local folder, in S3, or in memory."""
