"""What every service's composition root does: read its environment, run until told to stop.

**Invariant:** it knows processes and signals, and nothing of what a service serves.
"""

from fastvideo.service.environment import Environment
from fastvideo.service.run import Running, end_task, run_service, stop_asked

__all__ = ["Environment", "Running", "end_task", "run_service", "stop_asked"]
