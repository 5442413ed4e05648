"""What tenants write, sealed under their keys in the log, and erased with them."""
