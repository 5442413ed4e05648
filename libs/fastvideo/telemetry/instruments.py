"""Every metric of FastVideo: its name, unit, meaning and labels; docs/metrics.md has the table.

Names, units and label names are OpenTelemetry's; `prometheus_name` is how a scrape has them.
Labels are bounded: kinds, models, reasons and the like, never an id, nor a tenant.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final


class Kind(StrEnum):
    """What is measured of a thing."""

    # A sum that only rises, since the process began.
    COUNTER = "counter"
    # How it stands now, read from the state when somebody asks.
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


# Seconds, from a fast unit to a long request.
SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
# Shares of a whole; a prediction within 5 % is good, one beyond 50 % is none.
SHARES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
SIZES: Final = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)

MODEL: Final = "fastvideo.model.id"
PROGRAM: Final = "fastvideo.program.id"
REQUEST_KIND: Final = "fastvideo.request.kind"
OUTCOME: Final = "fastvideo.outcome"
UNIT_KIND: Final = "fastvideo.unit.kind"
RESOURCE: Final = "fastvideo.resource"
REASON: Final = "fastvideo.error.reason"
CACHE: Final = "fastvideo.cache.class"
TIER: Final = "fastvideo.cache.tier"
POOL: Final = "fastvideo.memory.pool"
FOLLOWER: Final = "fastvideo.log.follower"
CONSUMER: Final = "fastvideo.log.consumer"
STORED: Final = "fastvideo.stored"
VIEW: Final = "fastvideo.view"
EVENT_TYPE: Final = "fastvideo.event.type"
STATE: Final = "fastvideo.state"
SERVICE: Final = "fastvideo.service"
VERSION: Final = "fastvideo.version"

ALL_SERVICES: Final = ("gateway", "scheduler", "worker", "artifacts", "sessions")
_WRITERS: Final = ("gateway", "scheduler", "artifacts", "sessions")
_REQUEST: Final = (REQUEST_KIND, MODEL)
_ENDED: Final = (REQUEST_KIND, MODEL, OUTCOME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """One metric. `boundaries` are a histogram's upper bounds; `services` those that measure it."""

    name: str
    kind: Kind
    # UCUM: "s", "By", "1" for a ratio, "{request}" for things that are counted.
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    boundaries: tuple[float, ...] = ()
    services: tuple[str, ...] = ALL_SERVICES


def _instrument(
    name: str,
    unit: str,
    description: str,
    labels: tuple[str, ...] = (),
    services: tuple[str, ...] = ALL_SERVICES,
    *,
    kind: Kind,
    boundaries: tuple[float, ...] = (),
) -> Instrument:
    return Instrument(
        name=name,
        kind=kind,
        unit=unit,
        description=description,
        labels=labels,
        boundaries=boundaries,
        services=services,
    )


_counter: Final = partial(_instrument, kind=Kind.COUNTER)
_gauge: Final = partial(_instrument, kind=Kind.GAUGE)
_histogram: Final = partial(_instrument, kind=Kind.HISTOGRAM, boundaries=SECONDS)

# -- the doors ---------------------------------------------------------------------------

HTTP_DURATION: Final = _histogram(
    "http.server.request.duration",
    "s",
    "HTTP requests, from the head to the end of the answer; of a stream to its end",
    ("http.request.method", "http.route", "http.response.status_code"),
    ("gateway",),
)
RPC_DURATION: Final = _histogram(
    "rpc.server.call.duration",
    "s",
    "gRPC calls, from the first message to the status; of a stream to its end",
    ("rpc.method", "rpc.response.status_code"),
)
ERRORS: Final = _counter(
    "fastvideo.errors", "{error}", "Errors that callers were answered with, by reason", (REASON,)
)
QUOTAS_SHARED: Final = _gauge(
    "fastvideo.quotas.shared",
    "",
    "1 while quotas are kept in Redis for all gateways, 0 while this one keeps its own",
    (),
    ("gateway",),
)
BUILD: Final = _gauge("fastvideo.build.info", "", "1, with what runs as labels", (SERVICE, VERSION))

# -- requests ----------------------------------------------------------------------------

REQUESTS_ACCEPTED: Final = _counter(
    "fastvideo.requests.accepted",
    "{request}",
    "Requests that this gateway put into the log",
    _REQUEST,
    ("gateway",),
)
REQUESTS_ENDED: Final = _counter(
    "fastvideo.requests.ended",
    "{request}",
    "Requests whose end this scheduler put into the log",
    (*_ENDED, REASON),
    ("scheduler",),
)
REQUEST_DURATION: Final = _histogram(
    "fastvideo.request.duration",
    "s",
    "From a request's acceptance to its end",
    _ENDED,
    ("scheduler",),
)
REQUEST_WAIT: Final = _histogram(
    "fastvideo.request.queue.duration",
    "s",
    "From a request's acceptance to its first unit",
    _REQUEST,
    ("scheduler",),
)
REQUEST_DEVICE_TIME: Final = _counter(
    "fastvideo.request.device_time",
    "s",
    "Device-seconds of requests that ended",
    _ENDED,
    ("scheduler",),
)

# -- the scheduler -----------------------------------------------------------------------

LEADING: Final = _gauge(
    "fastvideo.scheduler.leading",
    "",
    "1 while this scheduler leads its shard, else 0",
    services=("scheduler",),
)
QUEUED: Final = _gauge(
    "fastvideo.scheduler.queue.length",
    "{request}",
    "Requests that wait for a place on a worker; told by the leader alone, as all that follows",
    (MODEL,),
    ("scheduler",),
)
QUEUE_AGE: Final = _gauge(
    "fastvideo.scheduler.queue.age",
    "s",
    "How long the request waits that has waited longest; 0 when none does",
    (MODEL,),
    ("scheduler",),
)
LIVE: Final = _gauge(
    "fastvideo.scheduler.requests.live",
    "{request}",
    "Requests that have not ended",
    (),
    ("scheduler",),
)
WORKERS: Final = _gauge(
    "fastvideo.scheduler.workers",
    "{worker}",
    "Workers with a model whose streams are up",
    (MODEL,),
    ("scheduler",),
)
RESERVED: Final = _gauge(
    "fastvideo.scheduler.reserved",
    "",
    "What is reserved over all workers, in the resource's own unit",
    (RESOURCE,),
    ("scheduler",),
)
FREE: Final = _gauge(
    "fastvideo.scheduler.free",
    "",
    "What is left over all workers, in the resource's own unit",
    (RESOURCE,),
    ("scheduler",),
)
DEFERRED: Final = _counter(
    "fastvideo.scheduler.deferrals",
    "{unit}",
    "Ready units that were not admitted, by what they wait for",
    (REASON,),
    ("scheduler",),
)
PREEMPTED: Final = _counter(
    "fastvideo.scheduler.preemptions",
    "{request}",
    "Requests that gave their place to others",
    (MODEL,),
    ("scheduler",),
)
RESTARTED: Final = _counter(
    "fastvideo.scheduler.restarts",
    "{request}",
    "Requests that began again after the loss of a worker",
    (MODEL,),
    ("scheduler",),
)
BATCH_SIZE: Final = _histogram(
    "fastvideo.batch.size",
    "{unit}",
    "Units that shared a forward",
    (UNIT_KIND, MODEL),
    ("scheduler",),
    boundaries=SIZES,
)
STEP_DURATION: Final = _histogram(
    "fastvideo.step.duration",
    "s",
    "A step of a batch, as the worker measured it; of a window the mean",
    (UNIT_KIND, MODEL),
    ("scheduler",),
)
STEPS: Final = _counter(
    "fastvideo.steps", "{unit}", "Units that ran", (UNIT_KIND, MODEL), ("scheduler",)
)
PREDICTION_ERROR: Final = _histogram(
    "fastvideo.scheduler.prediction_error",
    "1",
    "Predicted device-seconds of a batch against the measured ones, 0 to 1",
    (UNIT_KIND,),
    ("scheduler",),
    boundaries=SHARES,
)

# -- workers -----------------------------------------------------------------------------

CACHE_LOOKUPS: Final = _counter(
    "fastvideo.cache.lookups",
    "{lookup}",
    "Looks into caches, and entries kept and evicted",
    (CACHE, TIER, OUTCOME),
    ("worker",),
)
CACHE_BYTES: Final = _counter(
    "fastvideo.cache.io",
    "By",
    "Bytes that caches gave, kept and let go",
    (CACHE, TIER, OUTCOME),
    ("worker",),
)
MEMORY_USED: Final = _gauge(
    "fastvideo.worker.memory.usage", "By", "Bytes held in a pool", (POOL,), ("worker",)
)
MEMORY_RESERVED: Final = _gauge(
    "fastvideo.worker.memory.reserved",
    "By",
    "Bytes held in a pool or claimed by requests",
    (POOL,),
    ("worker",),
)
MEMORY_LIMIT: Final = _gauge(
    "fastvideo.worker.memory.limit", "By", "The pool's budget", (POOL,), ("worker",)
)
LOOPS: Final = _gauge(
    "fastvideo.worker.loops", "{loop}", "Loops that live on this worker", (), ("worker",)
)
ATTACHED: Final = _gauge(
    "fastvideo.worker.attached",
    "",
    "1 while a scheduler drives this worker, else 0",
    services=("worker",),
)

# -- artifacts ---------------------------------------------------------------------------

BYTES_IN: Final = _counter(
    "fastvideo.artifacts.received", "By", "Bytes put, whole or not", (STORED,), ("artifacts",)
)
BYTES_OUT: Final = _counter(
    "fastvideo.artifacts.sent", "By", "Bytes read by others", (STORED,), ("artifacts",)
)
SWEEP_FAILURES: Final = _counter(
    "fastvideo.artifacts.sweep_failures",
    "{failure}",
    "What a sweep could not do and the next one comes back to",
    (REASON,),
    ("artifacts",),
)
REMOVALS_OVERDUE: Final = _gauge(
    "fastvideo.artifacts.removals_overdue",
    "{blob}",
    "Bytes that were to go and that the store has not removed",
    services=("artifacts",),
)

# -- the event log -----------------------------------------------------------------------

APPENDED: Final = _counter(
    "fastvideo.log.appended", "{event}", "Events that this process committed", (), _WRITERS
)
APPEND_DURATION: Final = _histogram(
    "fastvideo.log.append.duration",
    "s",
    "One commit of the log, with all that went with it",
    (),
    _WRITERS,
)
LAG: Final = _gauge(
    "fastvideo.log.lag",
    "{event}",
    "Events that a follower of the log has not taken in; take the largest",
    (FOLLOWER,),
    ("gateway", "scheduler", "sessions"),
)
HEAD: Final = _gauge(
    "fastvideo.log.events",
    "{event}",
    "Events in the log; take the largest",
    (),
    ("gateway", "scheduler", "sessions"),
)
QUARANTINED: Final = _gauge(
    "fastvideo.log.quarantined",
    "{event}",
    "Events that a consumer could not handle and put aside; take the largest",
    (CONSUMER,),
    ("gateway",),
)
PASSED_OVER: Final = _counter(
    "fastvideo.log.passed_over",
    "{event}",
    "Events that a view could not read: a newer program wrote them, or they are damaged",
    (VIEW, EVENT_TYPE),
    ("gateway", "artifacts", "sessions"),
)

INSTRUMENTS: Final[tuple[Instrument, ...]] = (
    *(HTTP_DURATION, RPC_DURATION, ERRORS, QUOTAS_SHARED, BUILD),
    *(REQUESTS_ACCEPTED, REQUESTS_ENDED, REQUEST_DURATION, REQUEST_WAIT, REQUEST_DEVICE_TIME),
    *(LEADING, QUEUED, QUEUE_AGE, LIVE, WORKERS, RESERVED, FREE, DEFERRED, PREEMPTED, RESTARTED),
    *(BATCH_SIZE, STEP_DURATION, STEPS, PREDICTION_ERROR),
    *(CACHE_LOOKUPS, CACHE_BYTES, MEMORY_USED, MEMORY_RESERVED, MEMORY_LIMIT, LOOPS, ATTACHED),
    *(BYTES_IN, BYTES_OUT, SWEEP_FAILURES, REMOVALS_OVERDUE),
    *(APPENDED, APPEND_DURATION, LAG, HEAD, QUARANTINED, PASSED_OVER),
)
"""All of them, in the order in which a request meets them."""

_REASON: Final = re.compile(r"[A-Z][A-Z0-9_]{0,47}")
_UNITS: Final = {"s": "seconds", "By": "bytes"}


def prometheus_unit(unit: str, kind: str) -> str:
    """The word that Prometheus's names end in; empty for what is counted."""
    if unit == "1":
        return "ratio" if kind == Kind.GAUGE else ""
    return _UNITS.get(unit, "")


def prometheus_name(instrument: Instrument) -> str:
    """The name of a metric in a scrape: dots become underscores, the unit and the kind follow."""
    name = plain(instrument.name)
    unit = prometheus_unit(instrument.unit, instrument.kind)
    if unit and not name.endswith(f"_{unit}"):
        name = f"{name}_{unit}"
    return f"{name}_total" if instrument.kind is Kind.COUNTER else name


def plain(name: str) -> str:
    """An OpenTelemetry name in Prometheus's characters."""
    return name.replace(".", "_").replace("-", "_")


def reason_label(reason: str) -> str:
    """An error's reason as a label: those of typed errors are words of our own."""
    return reason if _REASON.fullmatch(reason) else "OTHER"
