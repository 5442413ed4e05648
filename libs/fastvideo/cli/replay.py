"""`fastvideo replay`: run the past again, and see whether it comes out the same.

Imports what a command needs when it runs.
"""

from pathlib import Path
from typing import Annotated

import typer

from fastvideo.cli.options import AsJson, Gateway
from fastvideo.cli.stack import DataOption

EPILOG = (
    "Exit codes: 0 nothing differs, 1 something does, 2 wrong usage or no answer, 130 interrupted."
)


def _more_than_nothing(share: float) -> float:
    if not share > 0:
        raise typer.BadParameter(f"{share:g} of the hits is none; more than 0, up to 1")
    return share


Request = Annotated[str, typer.Argument(metavar="REQUEST", help="The request's id.")]
Here = Annotated[
    bool, typer.Option("--here", help="Run it on this machine, from what the log says of the run.")
]
Checkpoints = Annotated[
    Path | None,
    typer.Option("--checkpoints", metavar="DIR", help="With --here: where the weights are."),
]
Families = Annotated[
    list[str] | None,
    typer.Option(
        "--families", metavar="PACKAGE", help="With --here: a package with a model family."
    ),
]
Artifacts = Annotated[
    str,
    typer.Option(
        "--artifacts",
        metavar="HOST:PORT",
        help="With --here: the artifact service; the gateway when left out.",
    ),
]
Tolerance = Annotated[
    float,
    typer.Option(
        "--tolerance",
        min=0.0,
        help="Largest difference that passes where bits are not promised; 0 takes the card's.",
    ),
]
Sample = Annotated[
    float,
    typer.Option(
        "--sample",
        max=1.0,
        callback=_more_than_nothing,
        help="Share of the hits that is recomputed: more than 0, up to 1.",
    ),
]


def register(parent: typer.Typer) -> None:
    """Add the commands to an application."""
    app = typer.Typer(
        help="Run the past again and compare: what the system knew, decided and computed.",
        no_args_is_help=True,
        epilog=EPILOG,
    )
    for command in (state, decision, execution, cache, behavior):
        app.command(epilog=EPILOG)(command)
    parent.add_typer(app, name="replay")


def state(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="[SUBJECT]",
            help='A request, session or artifact, "scheduler", or everything when left out.',
        ),
    ] = "",
    until: Annotated[
        list[str] | None,
        typer.Option(
            "--until",
            metavar="[PARTITION:]OFFSET",
            help="Up to this place of the log; may be given for each partition.",
        ),
    ] = None,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """What did the system know: fold the log, compare with what is served.

    With --until it shows what was known there.
    """
    from fastvideo.cli.replaying import parse_until, replay
    from fastvideo.replay.types import ReplayKind, ReplayRequest

    request = ReplayRequest(
        kind=ReplayKind.STATE, subject_id=subject, until=parse_until(until or [])
    )
    replay(request, gateway=gateway, data=data, as_json=as_json)


def decision(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="[SUBJECT]", help="A request; every decision of the shard when left out."
        ),
    ] = "",
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="Another scheduling policy: what would its waits and utilisation have been?",
        ),
    ] = None,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Why did the scheduler do that: tell it the same again, compare what it decides."""
    from fastvideo.cli.replaying import read_policy_text, replay
    from fastvideo.replay.types import ReplayKind, ReplayRequest

    request = ReplayRequest(
        kind=ReplayKind.DECISION,
        subject_id=subject,
        policy=read_policy_text(policy) if policy is not None else "",
    )
    replay(request, gateway=gateway, data=data, as_json=as_json)


def execution(
    request_id: Request,
    tolerance: Tolerance = 0.0,
    detail: Annotated[
        bool, typer.Option("--detail", help="Compare layers too, where the log has them.")
    ] = False,
    here: Here = False,
    checkpoints: Checkpoints = None,
    families: Families = None,
    artifacts: Artifacts = "",
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Does the request give the same bits today: run its loops, compare step by step.

    It runs beside a worker that has the model, or with --here on this machine.
    """
    from fastvideo.cli.replaying import HereOptions, replay
    from fastvideo.replay.types import ReplayKind, ReplayRequest

    request = ReplayRequest(
        kind=ReplayKind.EXECUTION, subject_id=request_id, tolerance=tolerance, detail=detail
    )
    where = HereOptions.of(here, checkpoints, families, artifacts)
    replay(request, here=where, gateway=gateway, data=data, as_json=as_json)


def cache(
    request_id: Request,
    sample: Sample = 1.0,
    here: Here = False,
    checkpoints: Checkpoints = None,
    families: Families = None,
    artifacts: Artifacts = "",
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Was every cache hit legitimate: derive the keys again, compute hits again."""
    from fastvideo.cli.replaying import HereOptions, replay
    from fastvideo.replay.types import ReplayKind, ReplayRequest

    request = ReplayRequest(kind=ReplayKind.CACHE, subject_id=request_id, sample=sample)
    where = HereOptions.of(here, checkpoints, families, artifacts)
    replay(request, here=where, gateway=gateway, data=data, as_json=as_json)


def behavior(
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="A record of behaviour, or a request.")
    ],
    tolerance: Tolerance = 0.0,
    here: Here = False,
    checkpoints: Checkpoints = None,
    families: Families = None,
    artifacts: Artifacts = "",
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Is a sample's log-probability what the policy gives: recompute it on the trajectory."""
    from fastvideo.cli.replaying import HereOptions, replay
    from fastvideo.replay.types import ReplayKind, ReplayRequest

    request = ReplayRequest(kind=ReplayKind.BEHAVIOR, subject_id=subject, tolerance=tolerance)
    where = HereOptions.of(here, checkpoints, families, artifacts)
    replay(request, here=where, gateway=gateway, data=data, as_json=as_json)
