"""What every service's composition root does: read its environment, run until told to stop.

**Invariant:** it knows processes and signals, and nothing of what a service serves.
"""
