"""The five services as parts of a plan. Their environment is the contract in README.md."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fastvideo.local.config import StackConfig
from fastvideo.local.plan import ProcessSpec
from fastvideo.local.ports import HOST
from fastvideo.local.probes import GrpcHealth
from fastvideo.local.servers import module_argv

PARTITIONS = 1
METRICS = "-metrics"


@dataclass(frozen=True)
class ServerUrls:
    """Where the servers are; the URLs hold passwords."""

    postgres_dsn: str = field(repr=False)
    nats_url: str = field(repr=False)
    redis_url: str = field(repr=False)


def service_names(workers: int, schedulers: int) -> tuple[str, ...]:
    """Names of all service processes; each has a gRPC port under its name."""
    return (
        "artifacts",
        "sessions",
        *numbered("scheduler", schedulers),
        *numbered("worker", workers),
        "gateway",
    )


def measured_names(workers: int, schedulers: int) -> tuple[str, ...]:
    """Names of the ports on which services are scraped; the gateway's is that of its HTTP."""
    names = service_names(workers, schedulers)
    return tuple(f"{name}{METRICS}" for name in names if name != "gateway")


def numbered(service: str, count: int) -> tuple[str, ...]:
    """scheduler-1, scheduler-2, ..."""
    return tuple(f"{service}-{i}" for i in range(1, count + 1))


def service_parts(
    config: StackConfig, ports: Mapping[str, int], urls: ServerUrls, needs: tuple[str, ...]
) -> tuple[ProcessSpec, ...]:
    """All service processes, in dependency order.

    Those with a database start when `needs` are ready. A worker has none: it starts at once, since
    loading its model takes longest, and announces itself as soon as a scheduler answers.
    """
    shared = _shared_environment(config, ports, urls)

    def part(name: str, given: Mapping[str, str], needs: tuple[str, ...]) -> ProcessSpec:
        service = name.partition("-")[0]
        address = f"{HOST}:{ports[name]}"
        own = {"FASTVIDEO_SERVICE_ID": name, "FASTVIDEO_LISTEN": address}
        if f"{name}{METRICS}" in ports:
            own["FASTVIDEO_METRICS_LISTEN"] = f"{HOST}:{ports[f'{name}{METRICS}']}"
        return ProcessSpec(
            name=name,
            group=service,
            argv=module_argv(f"fastvideo_{service}"),
            environment={**given, **own},
            cwd=config.folder.root,
            ready=GrpcHealth(address),
            needs=needs,
            start_timeout_s=180.0 if service == "worker" else 60.0,
            address=address,
        )

    parts = []
    for name in service_names(config.options.workers, config.options.schedulers):
        if name == "gateway":
            http = f"{HOST}:{ports['gateway-http']}"
            own = {"FASTVIDEO_HTTP_LISTEN": http, **_doors(config)}
            parts.append(part(name, {**shared, **own}, needs))
        elif name.startswith("worker-"):
            models = _models_of(config, name)
            parts.append(part(name, {**_worker_environment(shared), **models}, ()))
        else:
            parts.append(part(name, shared, needs))
    return tuple(parts)


def _models_of(config: StackConfig, name: str) -> dict[str, str]:
    """What one worker serves, where that is not what all do."""
    if not config.options.worker_models:
        return {}
    index = int(name.rpartition("-")[2]) - 1
    return {"FASTVIDEO_MODELS": ",".join(config.options.worker_models[index])}


def _doors(config: StackConfig) -> dict[str, str]:
    """How people come in."""
    if not config.options.keys:
        return {"FASTVIDEO_AUTH": "open"}
    key_file = str(config.folder.operator_key)
    return {"FASTVIDEO_AUTH": "keys", "FASTVIDEO_ADMIN_KEY_FILE": key_file}


def _shared_environment(
    config: StackConfig, ports: Mapping[str, int], urls: ServerUrls
) -> dict[str, str]:
    schedulers = numbered("scheduler", config.options.schedulers)
    environment = {
        **config.inherited,
        "PYTHONUNBUFFERED": "1",
        "FASTVIDEO_POSTGRES_DSN": urls.postgres_dsn,
        "FASTVIDEO_NATS_URL": urls.nats_url,
        "FASTVIDEO_REDIS_URL": urls.redis_url,
        "FASTVIDEO_PARTITIONS": str(PARTITIONS),
        "FASTVIDEO_ARTIFACTS_ADDRESS": f"{HOST}:{ports['artifacts']}",
        "FASTVIDEO_SESSIONS_ADDRESS": f"{HOST}:{ports['sessions']}",
        "FASTVIDEO_SCHEDULER_ADDRESSES": ",".join(f"{HOST}:{ports[name]}" for name in schedulers),
        "FASTVIDEO_BLOBS_URL": config.folder.blobs.as_uri(),
        "FASTVIDEO_ARCHIVE_URL": config.folder.archive.as_uri(),
        "FASTVIDEO_MASTER_KEY_FILE": str(config.folder.master_key),
        "FASTVIDEO_MODELS": config.models,
        "FASTVIDEO_CHECKPOINTS": str(config.checkpoints or config.folder.checkpoints),
        "FASTVIDEO_LOG_LEVEL": config.log_level,
    }
    if config.options.policy is not None:
        environment["FASTVIDEO_SCHEDULING_POLICY"] = str(config.options.policy.absolute())
    if not environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        # Nobody else keeps the spans.
        environment.setdefault("FASTVIDEO_TRACE_FOLDER", str(config.folder.traces))
    environment.pop("FASTVIDEO_METRICS_LISTEN", None)
    # Only the name that services know is handed on.
    environment.pop("FASTVIDEO_POSTGRES_URL", None)
    # The key of whoever starts the stack is not for the stack.
    environment.pop("FASTVIDEO_API_KEY", None)
    # Nor is how that person dials gateways elsewhere: these listen on loopback, in the clear.
    for name in [name for name in environment if name.startswith("FASTVIDEO_TLS_")]:
        del environment[name]
    return environment


def _worker_environment(shared: Mapping[str, str]) -> dict[str, str]:
    # At the embedded model's size one thread is faster than two; a spinning one starves the rest.
    defaults = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    environment = {**defaults, **shared}
    # A worker writes no event: it has no business with the database, nor with its keys.
    del environment["FASTVIDEO_POSTGRES_DSN"]
    environment.pop("FASTVIDEO_MASTER_KEY", None)
    del environment["FASTVIDEO_MASTER_KEY_FILE"]
    return environment
