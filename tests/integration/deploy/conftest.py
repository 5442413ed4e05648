"""Both overlays, rendered once."""

import shutil
import subprocess

import pytest
import yaml

from tests.integration.deploy.manifests import OVERLAYS, Objects


@pytest.fixture(scope="module", params=["dev", "prod"])
def rendered(request: pytest.FixtureRequest) -> str:
    """What would be applied."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    result = subprocess.run(
        ["kubectl", "kustomize", str(OVERLAYS / request.param)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.fixture(scope="module")
def objects(rendered: str) -> Objects:
    return list(yaml.safe_load_all(rendered))
