"""python -m fastvideo_sessions: serve until SIGTERM or SIGINT."""

from fastvideo.service.run import run_service
from fastvideo_sessions.app import running_sessions
from fastvideo_sessions.config import load_config


def main() -> None:
    """Configure, serve, and end with a message when serving is impossible."""
    run_service("sessions", load_config, running_sessions)


if __name__ == "__main__":
    main()
