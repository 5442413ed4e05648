"""python -m fastvideo_scheduler: lead or stand by until SIGTERM or SIGINT."""

from fastvideo.service.run import run_service
from fastvideo_scheduler.app import running_scheduler
from fastvideo_scheduler.config import load_config


def main() -> None:
    """Configure, serve, and end with a message when serving is impossible."""
    run_service("scheduler", load_config, running_scheduler)


if __name__ == "__main__":
    main()
