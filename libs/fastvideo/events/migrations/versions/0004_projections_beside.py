"""Let the application make, rename and drop the schemas of its projections, and no others.

A projection is rebuilt in a schema beside the live one, which then takes its name. The schema
of a layout carries the layout's version, so that two programs of different layouts live beside
one another. The functions run with the rights of whoever migrates: the application's role needs
no right on the database, which a dump would not carry along.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

SCHEMAS = ("gateway", "sessions")

CHECK = """
CREATE FUNCTION check_projection_schema(p_name text) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    IF p_name !~ '^[a-z][a-z0-9_]*_v[0-9]+(_(build|old)_[0-9a-f]+)?$' THEN
        RAISE EXCEPTION '% is no schema of a projection', p_name USING ERRCODE = 'FV005';
    END IF;
END
$body$
"""

MAKE = """
CREATE FUNCTION make_projection_schema(p_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $body$
BEGIN
    PERFORM check_projection_schema(p_name);
    EXECUTE format('CREATE SCHEMA %I', p_name);
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO fastvideo_app', p_name);
END
$body$
"""

RENAME = """
CREATE FUNCTION rename_projection_schema(p_name text, p_new text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $body$
BEGIN
    PERFORM check_projection_schema(p_name), check_projection_schema(p_new);
    EXECUTE format('ALTER SCHEMA %I RENAME TO %I', p_name, p_new);
END
$body$
"""

DROP = """
CREATE FUNCTION drop_projection_schema(p_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $body$
BEGIN
    PERFORM check_projection_schema(p_name);
    EXECUTE format('DROP SCHEMA IF EXISTS %I CASCADE', p_name);
END
$body$
"""

FUNCTIONS = (
    "make_projection_schema(text)",
    "rename_projection_schema(text, text)",
    "drop_projection_schema(text)",
)


def upgrade() -> None:
    for statement in (CHECK, MAKE, RENAME, DROP):
        op.execute(statement)
    for function in FUNCTIONS:
        op.execute(f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {function} TO fastvideo_app")
    for schema in SCHEMAS:
        op.execute(f"ALTER SCHEMA {schema} RENAME TO {schema}_v1")
