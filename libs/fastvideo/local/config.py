"""What `fastvideo up` was asked for, and what the environment says; the only reader of it here."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastvideo.errors import InvalidField
from fastvideo.local.folder import DataFolder, default_data_folder
from fastvideo.model.embedded import EMBEDDED_MODEL_ID

_PARTS_MAX = 64


@dataclass(frozen=True)
class StackOptions:
    """What the command line gives; `None` and 0 mean "as it is by default".

    `http_port` and `grpc_port` are the gateway's; without them the remembered ports are taken, and
    free ones at the first start.
    """

    data: Path
    http_port: int | None = None
    grpc_port: int | None = None
    workers: int = 1
    schedulers: int = 1
    # File of the scheduling policy.
    policy: Path | None = None
    # Whether the gateway asks for keys; else it is open for everybody on this machine.
    keys: bool = False
    # The models of each worker; empty when all of them serve the same.
    worker_models: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        for name in ("http_port", "grpc_port"):
            port = getattr(self, name)
            if port is not None and not 1 <= port <= 65_535:
                raise InvalidField(f"--{name.removesuffix('_port')}", port, "a port, 1 to 65535")
        for name in ("workers", "schedulers"):
            count = getattr(self, name)
            if not 1 <= count <= _PARTS_MAX:
                raise InvalidField(f"--{name}", count, f"1 to {_PARTS_MAX}")
        if self.worker_models and len(self.worker_models) != self.workers:
            raise InvalidField("workers", self.workers, f"{len(self.worker_models)}, one a list")

    @property
    def folder(self) -> DataFolder:
        """The data folder, its path made absolute."""
        return DataFolder(self.data.expanduser().absolute())

    def to_json(self) -> str:
        """For the command line of the detached supervisor; holds no secret."""
        policy = str(self.policy.absolute()) if self.policy is not None else None
        record = {**dataclasses.asdict(self), "data": str(self.folder.root), "policy": policy}
        return json.dumps(record)

    @classmethod
    def from_json(cls, text: str) -> "StackOptions":
        """The options that `to_json` wrote."""
        record = json.loads(text)
        policy = Path(record["policy"]) if record["policy"] is not None else None
        models = tuple(map(tuple, record["worker_models"]))
        paths = {"data": Path(record["data"]), "policy": policy}
        return cls(**{**record, **paths, "worker_models": models})


@dataclass(frozen=True)
class StackConfig:
    """Options and environment together.

    The URLs name servers that run already; an empty one means that the stack starts its own.
    `inherited` is the environment that services get in addition to their own variables.
    """

    options: StackOptions
    postgres_url: str = field(default="", repr=False)
    nats_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    models: str = EMBEDDED_MODEL_ID
    checkpoints: Path | None = None
    log_level: str = "info"
    inherited: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def folder(self) -> DataFolder:
        return self.options.folder


def load_config(options: StackOptions, environment: Mapping[str, str]) -> StackConfig:
    """Read FASTVIDEO_POSTGRES_URL, _NATS_URL, _REDIS_URL, _MODELS, _CHECKPOINTS and _LOG_LEVEL."""
    checkpoints = environment.get("FASTVIDEO_CHECKPOINTS", "")
    return StackConfig(
        options=options,
        postgres_url=environment.get("FASTVIDEO_POSTGRES_URL", ""),
        nats_url=environment.get("FASTVIDEO_NATS_URL", ""),
        redis_url=environment.get("FASTVIDEO_REDIS_URL", ""),
        models=environment.get("FASTVIDEO_MODELS", EMBEDDED_MODEL_ID),
        checkpoints=Path(checkpoints).expanduser().absolute() if checkpoints else None,
        log_level=environment.get("FASTVIDEO_LOG_LEVEL", "info"),
        inherited=dict(environment),
    )


def options_for(data: Path | None, environment: Mapping[str, str]) -> StackOptions:
    """Options that name only the data folder, the default one when `data` is None."""
    return StackOptions(data=data if data is not None else default_data_folder(environment))
