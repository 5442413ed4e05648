"""The event log: tables, the append function, append-only triggers and the application role."""

from collections.abc import Sequence

from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TABLES = (
    """
    CREATE TABLE events (
        partition integer NOT NULL,
        "offset" bigint NOT NULL,
        stream_id text COLLATE "C" NOT NULL,
        stream_version bigint NOT NULL,
        event_id text COLLATE "C" NOT NULL,
        type text COLLATE "C" NOT NULL,
        schema_version integer NOT NULL,
        payload bytea NOT NULL,
        payload_sha256 bytea NOT NULL,
        metadata bytea NOT NULL,
        fence_epoch bigint NOT NULL,
        recorded_at timestamptz NOT NULL,
        CONSTRAINT events_pkey PRIMARY KEY (partition, "offset"),
        CONSTRAINT events_stream_key UNIQUE (stream_id, stream_version),
        CONSTRAINT events_event_id_key UNIQUE (event_id)
    )
    """,
    """
    CREATE TABLE streams (
        stream_id text COLLATE "C" NOT NULL CONSTRAINT streams_pkey PRIMARY KEY,
        version bigint NOT NULL
    )
    """,
    """
    CREATE TABLE partitions (
        partition integer NOT NULL CONSTRAINT partitions_pkey PRIMARY KEY,
        next_offset bigint NOT NULL,
        log_epoch bigint NOT NULL
    ) WITH (fillfactor = 10)
    """,
    """
    CREATE TABLE commands (
        idempotency_key text COLLATE "C" NOT NULL CONSTRAINT commands_pkey PRIMARY KEY,
        result bytea NOT NULL,
        recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
    """
    CREATE TABLE leases (
        name text COLLATE "C" NOT NULL CONSTRAINT leases_pkey PRIMARY KEY,
        holder text COLLATE "C" NOT NULL,
        epoch bigint NOT NULL,
        expires_at timestamptz NOT NULL
    ) WITH (fillfactor = 10)
    """,
    """
    CREATE TABLE checkpoints (
        projection text COLLATE "C" NOT NULL,
        partition integer NOT NULL,
        "offset" bigint NOT NULL,
        CONSTRAINT checkpoints_pkey PRIMARY KEY (projection, partition)
    ) WITH (fillfactor = 10)
    """,
    """
    CREATE TABLE inbox (
        consumer text COLLATE "C" NOT NULL,
        event_id text COLLATE "C" NOT NULL,
        seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        CONSTRAINT inbox_pkey PRIMARY KEY (consumer, event_id)
    )
    """,
    """
    CREATE TABLE quarantine (
        consumer text COLLATE "C" NOT NULL,
        event_id text COLLATE "C" NOT NULL,
        partition integer NOT NULL,
        "offset" bigint NOT NULL,
        type text COLLATE "C" NOT NULL,
        attempts integer NOT NULL,
        error text COLLATE "C" NOT NULL,
        quarantined_at timestamptz NOT NULL,
        CONSTRAINT quarantine_pkey PRIMARY KEY (consumer, event_id)
    )
    """,
)

# Events come as columns, `e_`, each naming its run: events of one command that follow one another
# in a stream. An event's offset and version are its place in the columns plus the run's shift.
#
# Locks are always taken in one order (leases, keys, marks, partitions ascending), and whoever
# writes a stream holds its partition, so that writers cannot deadlock. The lease is locked until
# commit: a new holder's epoch is only visible once no append of the old one can follow.
APPEND_FUNCTION = """
CREATE FUNCTION append_events(
    p_leases text[], p_epochs bigint[],
    p_keys text[], p_results bytea[],
    p_consumers text[], p_seen text[],
    p_partitions integer[], p_partition_counts bigint[],
    p_streams text[], p_expected bigint[], p_stream_counts bigint[],
    r_stream integer[], r_partition integer[], r_version_shift bigint[], r_offset_shift bigint[],
    r_fence_epoch bigint[],
    e_run integer[], e_event_id text[], e_type text[], e_schema_version integer[],
    e_payload bytea[], e_digest bytea[], e_metadata bytea[],
    OUT offset_bases bigint[], OUT version_bases bigint[]
) LANGUAGE plpgsql AS $body$
DECLARE
    taken bigint;
    touched bigint;
    recorded timestamptz;
BEGIN
    FOR i IN 1 .. cardinality(p_leases) LOOP
        PERFORM 1 FROM leases WHERE name = p_leases[i] AND epoch = p_epochs[i] FOR SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'lease % is not at epoch %', p_leases[i], p_epochs[i]
                USING ERRCODE = 'FV002', DETAIL = p_leases[i];
        END IF;
    END LOOP;

    FOR i IN 1 .. cardinality(p_keys) LOOP
        INSERT INTO commands (idempotency_key, result) VALUES (p_keys[i], p_results[i])
            ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'idempotency key was used' USING ERRCODE = 'FV003';
        END IF;
    END LOOP;

    FOR i IN 1 .. cardinality(p_consumers) LOOP
        INSERT INTO inbox (consumer, event_id) VALUES (p_consumers[i], p_seen[i])
            ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'event was handled' USING ERRCODE = 'FV003';
        END IF;
    END LOOP;

    FOR i IN 1 .. cardinality(p_partitions) LOOP
        UPDATE partitions SET next_offset = next_offset + p_partition_counts[i]
            WHERE partition = p_partitions[i]
            RETURNING next_offset - p_partition_counts[i] INTO STRICT taken;
        offset_bases[i] := taken;
    END LOOP;

    IF cardinality(p_streams) = 1 THEN
        INSERT INTO streams AS s VALUES (p_streams[1], p_stream_counts[1])
            ON CONFLICT (stream_id) DO UPDATE SET version = s.version + excluded.version
            RETURNING version - p_stream_counts[1] INTO taken;
        version_bases[1] := taken;
    ELSE
        WITH written AS (
            INSERT INTO streams AS s SELECT * FROM unnest(p_streams, p_stream_counts)
                ON CONFLICT (stream_id) DO UPDATE SET version = s.version + excluded.version
                RETURNING stream_id, version
        )
        SELECT array_agg(w.version - r.count ORDER BY r.place) INTO version_bases
            FROM unnest(p_streams, p_stream_counts) WITH ORDINALITY AS r (id, count, place)
            JOIN written w ON w.stream_id = r.id;
    END IF;
    FOR i IN 1 .. cardinality(p_streams) LOOP
        IF p_expected[i] <> version_bases[i] THEN
            RAISE EXCEPTION 'stream % is at version %, expected %',
                p_streams[i], version_bases[i], p_expected[i]
                USING ERRCODE = 'FV001', DETAIL = p_streams[i], HINT = version_bases[i]::text;
        END IF;
    END LOOP;

    -- Read after the counters are held: time rises with the offset.
    recorded := clock_timestamp();
    INSERT INTO events
        SELECT p_partitions[r_partition[e.run]],
               offset_bases[r_partition[e.run]] + r_offset_shift[e.run] + e.place,
               p_streams[r_stream[e.run]],
               version_bases[r_stream[e.run]] + r_version_shift[e.run] + e.place,
               e.event_id, e.type, e.schema_version, e.payload, e.digest, e.metadata,
               r_fence_epoch[e.run], recorded
        FROM unnest(e_run, e_event_id, e_type, e_schema_version, e_payload, e_digest, e_metadata)
            WITH ORDINALITY
            AS e (run, event_id, type, schema_version, payload, digest, metadata, place);
END
$body$
"""

APPEND_ONLY = (
    """
    CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $body$
    BEGIN
        RAISE EXCEPTION '% on % is refused: the event log is append-only', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'FV004';
    END
    $body$
    """,
    """
    CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events
        FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()
    """,
    # ALWAYS: a session that plays a replica does not escape the rule.
    "ALTER TABLE events ENABLE ALWAYS TRIGGER events_append_only",
)

# Roles belong to the server, not to the database, and another database's migration may be making
# this one at the same moment.
APPLICATION_ROLE = (
    """
    DO $body$ BEGIN
        CREATE ROLE fastvideo_app NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END $body$
    """,
    # Whoever migrates may act as the application, also when no superuser.
    """
    DO $body$ BEGIN
        IF NOT pg_has_role(current_user, 'fastvideo_app', 'SET') THEN
            GRANT fastvideo_app TO CURRENT_USER;
        END IF;
    END $body$
    """,
    "GRANT SELECT, INSERT ON events, commands, quarantine TO fastvideo_app",
    "GRANT SELECT, INSERT, UPDATE ON streams, partitions, leases, checkpoints TO fastvideo_app",
    "GRANT SELECT, INSERT, DELETE ON inbox TO fastvideo_app",
    "GRANT SELECT ON event_log_schema TO fastvideo_app",
)


def upgrade() -> None:
    for statement in (*TABLES, APPEND_FUNCTION, *APPEND_ONLY, *APPLICATION_ROLE):
        op.execute(statement)
