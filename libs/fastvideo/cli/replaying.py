"""Runs a replay for the command line: where it runs, what is shown meanwhile, how it ends."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self

import typer
from rich.console import Console

from fastvideo import wire
from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.cli.config import load_config
from fastvideo.cli.connection import Target, find_gateway
from fastvideo.cli.failures import told_apart
from fastvideo.cli.replay_view import ReplayProgressView, report_lines
from fastvideo.cli.report import plain_record, print_json
from fastvideo.cli.running import run
from fastvideo.client import AsyncClient
from fastvideo.client.replays import OnTold, taken
from fastvideo.deployment.scheduling_policy import read_policy
from fastvideo.errors import FastVideoError, Unavailable
from fastvideo.replay.process import Replays, tls_options
from fastvideo.replay.types import ReplayReport, ReplayRequest
from fastvideo.requests.behavior import BEHAVIOR_PREFIX

EXIT_DIFFERS: Final = 1
PARTITION_DIGITS_MAX: Final = 6
OFFSET_DIGITS_MAX: Final = 18


@dataclass(frozen=True, slots=True)
class HereOptions:
    """How a replay runs on this machine."""

    checkpoints: Path | None
    families: tuple[str, ...]
    # "host:port"; empty is the gateway.
    artifacts: str

    @classmethod
    def of(
        cls, here: bool, checkpoints: Path | None, families: Sequence[str] | None, artifacts: str
    ) -> Self | None:
        """The options, or None for a replay that runs beside a worker."""
        if here:
            return cls(checkpoints, tuple(families or ()), artifacts)
        for name, given in (
            ("--checkpoints", checkpoints),
            ("--families", families),
            ("--artifacts", artifacts),
        ):
            if given:
                raise typer.BadParameter("only with --here", param_hint=name)
        return None

    def command(self, target: Target) -> tuple[str, ...]:
        """The process that runs it."""
        command = [sys.executable, "-m", "fastvideo.recompute"]
        if self.checkpoints is not None:
            command += ["--checkpoints", str(self.checkpoints)]
        for package in self.families:
            command += ["--family", package]
        command += tls_options(target.tls)
        return (*command, "--artifacts", self.artifacts or target.address)


def replay(
    request: ReplayRequest,
    *,
    gateway: str,
    data: Path | None,
    as_json: bool,
    here: HereOptions | None = None,
) -> None:
    """Run it, show its report, and exit with what came of it."""
    with told_apart(as_json=as_json):
        target = find_gateway(load_config(os.environ), gateway, data)
        view = nullcontext() if as_json else ReplayProgressView()
        with view as shown:
            on_told = shown.show if shown is not None else None
            report = run(_run(target, request, here, on_told))
    if as_json:
        print_json(plain_record(report))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for line in report_lines(report):
            console.print(line)
    raise typer.Exit(0 if report.equal else EXIT_DIFFERS)


async def _run(
    target: Target, request: ReplayRequest, here: HereOptions | None, on_told: OnTold | None
) -> ReplayReport:
    async with target.client() as client:
        if here is None:
            given = {field.name: getattr(request, field.name) for field in fields(request)}
            return await client.replay(**given, on_told=on_told)
        logged = await client.logged_run(await _request_of(client, request.subject_id))
    asked = worker_pb2.ReplayRequest(replay=wire.to_proto(request), run=wire.to_proto(logged))
    environment = {**os.environ, "FASTVIDEO_API_KEY": target.api_key}
    replays = Replays(here.command(target), environment=environment)
    try:
        async for response in replays.run(asked):
            report = taken(response, on_told)
            if report is not None:
                return report
    finally:
        await replays.close()
    raise Unavailable("the replay ended without a report", reason="NO_REPORT")


async def _request_of(client: AsyncClient, subject_id: str) -> str:
    """The request that a subject is, or that a record of behaviour is of."""
    if subject_id.startswith(BEHAVIOR_PREFIX):
        async with aclosing(client.behaviors({"behavior_id": subject_id}, limit=1)) as found:
            async for behavior in found:
                return behavior.record.request_id
    return subject_id


def parse_until(given: Sequence[str]) -> Mapping[int, int]:
    """Offsets by partition, of "OFFSET" (of partition 0) and "PARTITION:OFFSET"."""
    until: dict[int, int] = {}
    for text in given:
        partition, _, offset = text.rpartition(":")
        if not offset.isdecimal() or not (partition.isdecimal() or not partition):
            raise typer.BadParameter(f"{text!r} is not [PARTITION:]OFFSET", param_hint="--until")
        if len(partition) > PARTITION_DIGITS_MAX or len(offset) > OFFSET_DIGITS_MAX:
            raise typer.BadParameter(f"{text!r} is beyond every log", param_hint="--until")
        if int(partition or 0) in until:
            raise typer.BadParameter(
                f"partition {int(partition or 0)} is there twice", param_hint="--until"
            )
        until[int(partition or 0)] = int(offset)
    return until


def read_policy_text(path: Path) -> str:
    """A policy's file, checked before it goes anywhere."""
    try:
        read_policy(path)
    except FastVideoError as error:
        raise typer.BadParameter(error.message, param_hint="--policy") from error
    return path.read_text(encoding="utf-8")
