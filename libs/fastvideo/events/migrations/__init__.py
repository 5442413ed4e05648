"""Migrations of the event log's database, run by `fastvideo.events.migrate`."""
