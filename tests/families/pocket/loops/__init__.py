"""The pocket family's loops."""
