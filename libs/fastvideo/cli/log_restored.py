"""`fastvideo log restored`: what must be said after the database came back from a backup."""

import asyncio
from typing import Annotated

import typer

from fastvideo.cli.options import AsJson
from fastvideo.cli.stack import DataOption


def restored(
    postgres_url: Annotated[
        str,
        typer.Option(
            "--postgres-url",
            metavar="URL",
            envvar="FASTVIDEO_POSTGRES_URL",
            show_envvar=False,
            help="The database; default: FASTVIDEO_POSTGRES_URL, else that of the local stack.",
        ),
    ] = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Begin a new epoch of the log, after its database was restored from a backup.

    What was appended after the backup is gone. Readers go back to where the log ends now, leases
    jump beyond every epoch that a worker has seen. Restart the services afterwards.
    """
    from fastvideo.events.restoring import begin_log_epoch
    from fastvideo.local.database import running_database

    epoch = asyncio.run(begin_log_epoch(postgres_url or running_database(data)))
    if as_json:
        typer.echo(f'{{"log_epoch": {epoch}}}')
    else:
        typer.echo(f"The log is at epoch {epoch}. Restart the services now.")
