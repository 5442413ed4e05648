"""Schemas for the projections that the gateway and the session service keep.

The services make their tables in them: what is in a projection can be thrown away and is filled
again from the log, so its layout needs no migration.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

SCHEMAS = ("gateway", "sessions")


def upgrade() -> None:
    for schema in SCHEMAS:
        op.execute(f"CREATE SCHEMA {schema}")
        op.execute(f"GRANT USAGE, CREATE ON SCHEMA {schema} TO fastvideo_app")
