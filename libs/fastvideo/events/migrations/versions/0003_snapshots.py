"""Snapshots of folded states: caches of the log, of which the newest few are kept."""

from collections.abc import Sequence

from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE snapshots (
            name text NOT NULL,
            version bigint NOT NULL,
            body bytea NOT NULL,
            CONSTRAINT snapshots_pkey PRIMARY KEY (name, version)
        )
        """
    )
    # It is compressed already.
    op.execute("ALTER TABLE snapshots ALTER COLUMN body SET STORAGE EXTERNAL")
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON snapshots TO fastvideo_app")
