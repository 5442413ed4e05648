"""The Containerfiles lint clean and do not drift apart."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CONTROL = ("artifacts", "gateway", "scheduler", "sessions")


def containerfile(service: str) -> Path:
    return ROOT / "services" / service / "Containerfile"


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
@pytest.mark.parametrize("service", [*CONTROL, "worker"])
def test_a_containerfile_lints_clean(service: str) -> None:
    result = subprocess.run(
        ["hadolint", str(containerfile(service))],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 0, result.stdout


def test_the_control_side_images_differ_by_name_and_http_alone() -> None:
    def shape(service: str) -> str:
        text = containerfile(service).read_text().replace(service, "SERVICE")
        return text.replace(" \\\n    FASTVIDEO_HTTP_LISTEN=0.0.0.0:8080", "").replace(
            "EXPOSE 50051 8080", "EXPOSE 50051"
        )

    assert len({shape(service) for service in CONTROL}) == 1


@pytest.mark.parametrize("service", [*CONTROL, "worker"])
def test_an_image_runs_as_nobody_in_particular(service: str) -> None:
    lines = containerfile(service).read_text().splitlines()
    assert "USER 10001:10001" in lines
    assert lines.index("USER 10001:10001") < lines.index(
        f'ENTRYPOINT ["python", "-m", "fastvideo_{service}"]'
    )
