"""python -m fastvideo_artifacts: serve until SIGTERM or SIGINT."""

from fastvideo.service.run import run_service
from fastvideo_artifacts.app import running_artifacts
from fastvideo_artifacts.config import load_config


def main() -> None:
    """Configure, serve, and end with a message when serving is impossible."""
    run_service("artifacts", load_config, running_artifacts)


if __name__ == "__main__":
    main()
