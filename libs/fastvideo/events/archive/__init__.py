"""Ranges of the log that left the database: written, checked, found and read again."""
