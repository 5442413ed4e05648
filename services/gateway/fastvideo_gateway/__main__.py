"""python -m fastvideo_gateway: serve until SIGTERM or SIGINT."""

from fastvideo.service.run import run_service
from fastvideo_gateway.app import running_gateway
from fastvideo_gateway.config import load_config


def main() -> None:
    """Configure, serve, and end with a message when serving is impossible."""
    run_service("gateway", load_config, running_gateway)


if __name__ == "__main__":
    main()
