"""Let the application make and rename the schemas of its projections.

A projection is rebuilt in a schema beside the live one, which then takes its name. The schema
of a layout carries the layout's version, so that two programs of different layouts live beside
one another.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

SCHEMAS = ("gateway", "sessions")


def upgrade() -> None:
    op.execute(
        """
        DO $body$ BEGIN
            EXECUTE format('GRANT CREATE ON DATABASE %I TO fastvideo_app', current_database());
        END $body$
        """
    )
    for schema in SCHEMAS:
        op.execute(f"ALTER SCHEMA {schema} OWNER TO fastvideo_app")
        op.execute(f"ALTER SCHEMA {schema} RENAME TO {schema}_v1")
