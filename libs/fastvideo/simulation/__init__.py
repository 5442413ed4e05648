"""The scheduler's core in a simulated world: virtual time, workers as data, faults from a seed."""
