"""Who comes in: keys and tenants as the log has them, the doors, and what is for whom."""
