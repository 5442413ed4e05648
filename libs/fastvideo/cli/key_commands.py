"""What `fastvideo keys` and `fastvideo tenants` do once they know their gateway."""

import dataclasses
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from fastvideo.cli.connection import Target
from fastvideo.cli.failures import tell
from fastvideo.cli.running import run
from fastvideo.client.keys import ApiKeyInfo, NewKey
from fastvideo.errors import AlreadyExists, InvalidField
from fastvideo.requests.tenants import TenantPolicy
from fastvideo.rpc.api_keys import ApiToken

ADMIN_KEY_ID = "admin"
_PAGE_SIZE = 200


def expiry(now: datetime, days: float) -> datetime:
    """When a key of so many days ends. Raises InvalidField for days that no calendar has."""
    try:
        return now + timedelta(days=days)
    except (OverflowError, ValueError):
        raise InvalidField("--days", f"{days:g}", "days, up to the year 9999") from None


def create_key(
    target: Target, name: str, tenant_id: str, role: str, days: float | None, *, as_json: bool
) -> None:
    """Make a key and show it: on standard output nothing but the key, so that it can be piped."""
    expires_at = None if days is None else expiry(datetime.now(UTC), days)

    async def work() -> NewKey:
        async with target.client() as client:
            return await client.keys.create(
                name, tenant_id=tenant_id, role=role, expires_at=expires_at
            )

    new = run(work())
    info = new.info
    if as_json:
        typer.echo(json.dumps({**_record(info), "api_key": new.api_key}))
        return
    tell(f"key {info.key_id} of tenant {info.tenant_id}, {info.role}; it is shown this once:")
    typer.echo(new.api_key)


def list_keys(target: Target, tenant_id: str, *, every: bool, as_json: bool) -> None:
    """Show keys, the newest first."""
    now = datetime.now(UTC)
    keys = [key for key in run(_all(target, tenant_id)) if every or _standing(key, now) == "good"]
    if as_json:
        typer.echo(json.dumps([_record(key) for key in keys]))
        return
    table = Table("ID", "TENANT", "NAME", "ROLE", "CREATED", "STANDING", box=None)
    for key in keys:
        created = key.created_at.strftime("%Y-%m-%d %H:%M")
        row = (key.key_id, key.tenant_id, key.name, key.role, created, _standing(key, now))
        table.add_row(*row)
    Console().print(table)


def revoke_key(target: Target, key_id: str, *, as_json: bool) -> None:
    """End a key."""

    async def work() -> ApiKeyInfo:
        async with target.client() as client:
            return await client.keys.revoke(key_id)

    info = run(work())
    typer.echo(json.dumps(_record(info)) if as_json else f"revoked {info.key_id} ({info.name})")


def write_admin_key(path: Path) -> None:
    """Write a fresh operator's key to a file that only its owner reads.

    Raises AlreadyExists, so that a key in use is never lost.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise AlreadyExists(f"{path} is there already", subject="FILE") from error
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{ApiToken.new(ADMIN_KEY_ID).text}\n")
    typer.echo(f"wrote {path}; give it to the gateway as FASTVIDEO_ADMIN_KEY_FILE")


def show_policy(target: Target, tenant_id: str, *, as_json: bool) -> None:
    """Show what a tenant may use."""

    async def work() -> TenantPolicy:
        async with target.client() as client:
            return await client.keys.policy(tenant_id)

    _show(tenant_id, run(work()), as_json=as_json)


def change_policy(
    target: Target, tenant_id: str, changes: Mapping[str, Any], *, as_json: bool
) -> None:
    """Change what a tenant may use, and show it."""

    async def work() -> TenantPolicy:
        async with target.client() as client:
            policy = dataclasses.replace(await client.keys.policy(tenant_id), **changes)
            return await client.keys.set_policy(tenant_id, policy)

    _show(tenant_id, run(work()), as_json=as_json)


async def _all(target: Target, tenant_id: str) -> list[ApiKeyInfo]:
    found: list[ApiKeyInfo] = []
    token = ""
    async with target.client() as client:
        while True:
            page = await client.keys.list(
                tenant_id=tenant_id, page_size=_PAGE_SIZE, page_token=token
            )
            found += page.items
            token = page.next_page_token
            if not token:
                return found


def _show(tenant_id: str, policy: TenantPolicy, *, as_json: bool) -> None:
    record = dataclasses.asdict(policy)
    if as_json:
        typer.echo(json.dumps({"tenant_id": tenant_id, "policy": record}))
        return
    for name, value in record.items():
        unset = "as the gateway has it" if name == "media_ttl_s" else "no limit"
        typer.echo(f"{name:<24} {value or unset}")


def _standing(key: ApiKeyInfo, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= now else "good"


def _record(key: ApiKeyInfo) -> dict[str, Any]:
    record = dataclasses.asdict(key)
    for name in ("created_at", "expires_at", "revoked_at"):
        moment = getattr(key, name)
        record[name] = None if moment is None else moment.isoformat()
    return record
