"""Runs of many hostile inputs, each told by a seed and a number, and what a server went through."""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import psutil
from google.protobuf.descriptor import MethodDescriptor

from fastvideo.rpc.channel import open_channel
from fastvideo_gateway.http.answers import to_json
from fastvideo_gateway.http.openapi.document import document
from tests.fuzz.http_asks import ask_of, asked
from tests.fuzz.judging import Tally, made
from tests.fuzz.rpcs import rpc_of

SEED = int(os.environ.get("FUZZ_SEED", "20260101"))
"""Another one tries other inputs; a finding tells its seed and its number."""

After = Callable[[int, str], Any]


def random_of(number: int) -> Random:
    """The hand that makes the input of a number; by it alone an input can be made again."""
    return Random(f"{SEED}:{number}")


async def rpc_run(
    address: str,
    methods: Sequence[MethodDescriptor],
    numbers: range,
    ids: tuple[str, ...],
    after: After | None = None,
    at_once: int = 1,
) -> Tally:
    """Hostile calls of methods; `after` sees the code and the method of each."""
    tally = Tally(SEED)
    left = iter(numbers)
    async with open_channel(address) as channel:

        async def some() -> None:
            for number in left:
                rpc = rpc_of(random_of(number), methods, ids)
                outcome = await made(channel, rpc)
                tally.add(number, rpc.method, outcome, rpc.messages)
                if after is not None:
                    await after(number, outcome.code)

        await asyncio.gather(*(some() for _ in range(at_once)))
    return tally


async def http_run(
    address: str, numbers: range, ids: tuple[str, ...], after: After | None = None, at_once: int = 1
) -> Tally:
    """Hostile requests of everything in the document, and of what is no HTTP."""
    described = json.loads(to_json(document()))
    tally = Tally(SEED)
    left = iter(numbers)

    async def some() -> None:
        for number in left:
            ask = ask_of(random_of(number), described, ids)
            outcome = await asked(address, ask)
            tally.add(number, ask.name, outcome, (ask.data,))
            if after is not None:
                await after(number, outcome.code)

    await asyncio.gather(*(some() for _ in range(at_once)))
    return tally


def memory_mib(pid: int) -> float:
    """What a process holds in memory."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20


def descriptors(pid: int) -> int:
    """How many files and sockets a process has open."""
    return psutil.Process(pid).num_fds()
