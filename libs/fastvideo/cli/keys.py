"""`fastvideo keys` and `fastvideo tenants`: who may come in, and what tenants may use."""

from pathlib import Path
from typing import Annotated

import typer

from fastvideo.cli.options import AsJson, Gateway, gateway_target
from fastvideo.cli.stack import DataOption

TenantId = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's id.")]


def register(parent: typer.Typer) -> None:
    """Add the commands to an application."""
    keys = typer.Typer(help="API keys; for operators.", no_args_is_help=True)
    keys.command("create")(create)
    keys.command("list")(list_keys)
    keys.command("revoke")(revoke)
    keys.command("admin")(admin)
    parent.add_typer(keys, name="keys")
    tenants = typer.Typer(help="What tenants may use; for operators.", no_args_is_help=True)
    tenants.command("show")(show)
    tenants.command("set")(set_policy)
    parent.add_typer(tenants, name="tenants")


def create(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A name for the list: whose the key is, or what for."),
    ],
    tenant: Annotated[
        str,
        typer.Option("--tenant", metavar="ID", help="The tenant that it is of; default: your own."),
    ] = "",
    operator: Annotated[
        bool,
        typer.Option("--operator", help="For who runs the place: keys, log, replays, metrics."),
    ] = False,
    days: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="N", help="Days that it is good for; default: until it is revoked."
        ),
    ] = None,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a key. It is shown this once."""
    from fastvideo.cli.key_commands import create_key

    role = "operator" if operator else "user"
    create_key(gateway_target(gateway, data), name, tenant, role, days, as_json=as_json)


def list_keys(
    tenant: Annotated[str, typer.Option("--tenant", metavar="ID", help="Only this tenant's.")] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Also those that ended: revoked or expired.")
    ] = False,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """List keys, the newest first; with --json as one array."""
    from fastvideo.cli.key_commands import list_keys as show_keys

    show_keys(gateway_target(gateway, data), tenant, every=every, as_json=as_json)


def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, not the key.")],
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """End a key, and what runs with it."""
    from fastvideo.cli.key_commands import revoke_key

    revoke_key(gateway_target(gateway, data), key_id, as_json=as_json)


def admin(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that is not there yet.")],
) -> None:
    """Write an operator's key for a deployment to mount: FASTVIDEO_ADMIN_KEY_FILE."""
    from fastvideo.cli.key_commands import write_admin_key

    write_admin_key(file)


def show(
    tenant_id: TenantId, gateway: Gateway = "", data: DataOption = None, as_json: AsJson = False
) -> None:
    """Show what a tenant may use."""
    from fastvideo.cli.key_commands import show_policy

    show_policy(gateway_target(gateway, data), tenant_id, as_json=as_json)


def set_policy(
    tenant_id: TenantId,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=0, help="Requests in any minute; 0: no limit.")
    ] = None,
    device_seconds_per_hour: Annotated[
        float | None, typer.Option(min=0, help="Seconds of devices in any hour; 0: no limit.")
    ] = None,
    live_requests: Annotated[
        int | None, typer.Option(min=0, help="Requests that have not ended; 0: no limit.")
    ] = None,
    media_ttl: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="S", help="Seconds that files are kept; 0: as the gateway says."
        ),
    ] = None,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Set what a tenant may use; what is left out stays as it is."""
    from fastvideo.cli.key_commands import change_policy

    changes = {
        "requests_per_minute": requests_per_minute,
        "device_seconds_per_hour": device_seconds_per_hour,
        "live_requests_max": live_requests,
        "media_ttl_s": media_ttl,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    change_policy(gateway_target(gateway, data), tenant_id, given, as_json=as_json)
