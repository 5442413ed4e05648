"""Rows made of the log: kept up to date, compared by digest, rebuilt beside those in use."""
