"""Whose an artifact or a request is."""

from fastvideo.rpc.identity import DEFAULT_TENANT


def is_of(tenant_id: str | None, owner_id: str) -> bool:
    """Whether a thing is there for a tenant; None is a service, which sees every tenant's.

    What was stored before things had owners is the default tenant's.
    """
    return tenant_id is None or tenant_id == (owner_id or DEFAULT_TENANT)
