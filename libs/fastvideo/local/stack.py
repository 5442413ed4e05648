"""The whole of it: from options to a running stack, and to its clean end."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Coroutine, Iterator

from fastvideo.local.config import StackConfig
from fastvideo.local.credentials import (
    Credentials,
    ensure_master_key,
    load_credentials,
    make_credentials,
)
from fastvideo.local.errors import DataDamaged
from fastvideo.local.folder import DataFolder, require_reach
from fastvideo.local.leftovers import end_leftovers
from fastvideo.local.lock import StackLock
from fastvideo.local.operator_key import ensure_operator_key
from fastvideo.local.part import Pace
from fastvideo.local.plan import ProcessSpec, StackPlan
from fastvideo.local.ports import HOST, assign_ports
from fastvideo.local.programs import find_nats, find_postgres, find_redis, readable_postgres
from fastvideo.local.servers import (
    APP,
    SUPERUSER,
    nats_part,
    nats_url,
    postgres_data,
    postgres_dsn,
    postgres_parts,
    redis_part,
    redis_url,
    schema_part,
)
from fastvideo.local.services import (
    PARTITIONS,
    ServerUrls,
    measured_names,
    service_names,
    service_parts,
)
from fastvideo.local.state import StackState
from fastvideo.local.supervisor import Supervisor
from fastvideo.local.system_user import own, postgres_user

_KEPT_PORTS = ("gateway", "gateway-http")


async def run_stack(
    config: StackConfig,
    on_change: Callable[[StackState], None],
    on_ready: Callable[[StackState], None],
    pace: Pace | None = None,
) -> None:
    """Run a stack until SIGINT, SIGTERM or SIGHUP; a second one kills what still runs.

    Raises an error of `fastvideo.local.errors` when it does not come up; nothing is left running.
    """
    start_s = time.monotonic()
    folder = config.folder
    folder.prepare()
    with StackLock(folder):
        await end_leftovers(folder)
        plan = plan_stack(config)
        supervisor = Supervisor(plan, folder, on_change, pace, start_s)
        with _until_signalled(supervisor) as stop:
            async with supervisor:
                if await _unless_stopped(supervisor.start(), stop):
                    on_ready(supervisor.state)
                    await supervisor.run(stop)


def plan_stack(config: StackConfig) -> StackPlan:
    """The plan for the options: writes configuration files, ports and passwords, starts nothing."""
    folder = config.folder
    options = config.options
    own_servers = {
        "postgres": not config.postgres_url,
        "nats": not config.nats_url,
        "redis": not config.redis_url,
    }
    names = [name for name, is_own in own_servers.items() if is_own]
    names += [*service_names(options.workers, options.schedulers), "gateway-http"]
    names += measured_names(options.workers, options.schedulers)
    fixed = {"gateway": options.grpc_port, "gateway-http": options.http_port}
    ports = assign_ports(
        folder.ports,
        names,
        fixed={name: port for name, port in fixed.items() if port is not None},
        kept=_KEPT_PORTS,
    )
    credentials = _credentials(folder)
    ensure_master_key(folder.master_key)
    if options.keys:
        ensure_operator_key(folder.operator_key)
    urls = ServerUrls(
        postgres_dsn=config.postgres_url
        or postgres_dsn(APP, credentials.postgres_app, ports["postgres"]),
        nats_url=config.nats_url or nats_url(ports["nats"], credentials),
        redis_url=config.redis_url or redis_url(ports["redis"], credentials),
    )
    servers = _server_parts(config, ports, credentials)
    schema = _schema_part(config, ports, credentials, urls)
    needs = (schema.name, *(name for name in ("nats", "redis") if own_servers[name]))
    return StackPlan(
        parts=(*servers, schema, *service_parts(config, ports, urls, needs)),
        addresses={name: f"{HOST}:{port}" for name, port in ports.items()},
    )


def _server_parts(
    config: StackConfig, ports: dict[str, int], credentials: Credentials
) -> tuple[ProcessSpec, ...]:
    folder = config.folder
    parts: list[ProcessSpec] = []
    if not config.postgres_url:
        user = postgres_user(folder.postgres)
        own(folder.postgres, user)
        if user is not None:
            require_reach(user, folder.postgres)
        programs = find_postgres(postgres_data(folder))
        programs = readable_postgres(programs, user, folder.runtime)
        parts += postgres_parts(programs, folder, ports["postgres"], user, credentials)
    if not config.nats_url:
        parts.append(nats_part(find_nats(), folder, ports["nats"], credentials))
    if not config.redis_url:
        parts.append(redis_part(find_redis(), folder, ports["redis"], credentials))
    return tuple(parts)


def _schema_part(
    config: StackConfig, ports: dict[str, int], credentials: Credentials, urls: ServerUrls
) -> ProcessSpec:
    environment = {
        **config.inherited,
        "FASTVIDEO_POSTGRES_DSN": urls.postgres_dsn,
        "FASTVIDEO_PARTITIONS": str(PARTITIONS),
    }
    if config.postgres_url:
        return schema_part(config.folder, (), environment)
    environment["FASTVIDEO_POSTGRES_ADMIN_DSN"] = postgres_dsn(
        SUPERUSER, credentials.postgres_superuser, ports["postgres"], SUPERUSER
    )
    return schema_part(config.folder, ("postgres",), environment)


def _credentials(folder: DataFolder) -> Credentials:
    credentials = load_credentials(folder.credentials)
    if credentials is not None:
        return credentials
    if postgres_data(folder).exists():
        raise DataDamaged(
            f"{folder.credentials} is gone, and with it the passwords of the database in"
            f" {folder.postgres}: bring the file back, or start with an empty folder (--data DIR)",
            subject=str(folder.credentials),
        )
    return make_credentials(folder.credentials)


@contextlib.contextmanager
def _until_signalled(supervisor: Supervisor) -> Iterator[asyncio.Event]:
    """An event that the first signal to end sets; the second kills everything."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            supervisor.kill()
        stop.set()

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def _unless_stopped(starting: Coroutine[None, None, None], stop: asyncio.Event) -> bool:
    """Wait for the start to end; False when a signal came first."""
    start = asyncio.create_task(starting)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({start, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if start.done():
        start.result()
        return True
    start.cancel()
    await asyncio.wait({start})
    return False
