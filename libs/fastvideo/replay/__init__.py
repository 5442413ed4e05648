"""Runs the past again and compares: what a replay reads, and what it reports."""
