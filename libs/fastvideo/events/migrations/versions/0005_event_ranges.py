"""The events in ranges of offsets, each a table of its own that can be dropped in one step.

What one index over all events guaranteed is now kept by a table of event ids, and by the streams'
compare-and-set together with an index over each range. An existing log is copied into ranges
once, which takes about as long as appending it took. There is no way back: a range that was
archived is not in the database any more.
"""

from collections.abc import Sequence

from alembic import op
from sqlalchemy import text

revision: str = "0005"
down_revision: str | None = "0004"
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
        CONSTRAINT events_pkey PRIMARY KEY (partition, "offset")
    ) PARTITION BY RANGE (partition, "offset")
    """,
    """
    CREATE TABLE event_ids (
        event_id text COLLATE "C" NOT NULL CONSTRAINT event_ids_pkey PRIMARY KEY,
        partition integer NOT NULL,
        "offset" bigint NOT NULL
    )
    """,
    # The ranges that have a table.
    """
    CREATE TABLE event_ranges (
        partition integer NOT NULL,
        first_offset bigint NOT NULL,
        end_offset bigint NOT NULL,
        CONSTRAINT event_ranges_pkey PRIMARY KEY (partition, first_offset)
    )
    """,
    """
    CREATE TABLE archives (
        partition integer NOT NULL,
        first_offset bigint NOT NULL,
        last_offset bigint NOT NULL,
        object text COLLATE "C" NOT NULL,
        sha256 bytea NOT NULL,
        previous_sha256 bytea NOT NULL,
        events bigint NOT NULL,
        bytes bigint NOT NULL,
        archived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        CONSTRAINT archives_pkey PRIMARY KEY (partition, first_offset)
    )
    """,
    # Which archive holds which versions of a stream.
    """
    CREATE TABLE archived_streams (
        stream_id text COLLATE "C" NOT NULL,
        first_version bigint NOT NULL,
        last_version bigint NOT NULL,
        partition integer NOT NULL,
        archive bigint NOT NULL,
        CONSTRAINT archived_streams_pkey PRIMARY KEY (stream_id, first_version)
    )
    """,
    # A row without a key is that of an erased one.
    """
    CREATE TABLE tenant_keys (
        key_id text COLLATE "C" NOT NULL CONSTRAINT tenant_keys_pkey PRIMARY KEY,
        tenant_id text COLLATE "C" NOT NULL,
        wrapped_key bytea,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        erased_at timestamptz
    )
    """,
    """
    CREATE UNIQUE INDEX tenant_keys_live ON tenant_keys (tenant_id) WHERE erased_at IS NULL
    """,
    "CREATE INDEX commands_age ON commands USING brin (recorded_at)",
    "ALTER TABLE partitions ADD COLUMN ranged_to bigint NOT NULL DEFAULT 1",
    "ALTER TABLE partitions ADD COLUMN range_size bigint NOT NULL DEFAULT 1000000",
)

# Who makes ranges: the application, which owns no table. Ranges are made one at a time, under a
# lock that nobody waits for while holding what the maker needs. Attaching one disturbs neither
# readers nor writers.
EXTEND = """
CREATE FUNCTION extend_events(p_partition integer, p_until bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
DECLARE
    first bigint;
    size bigint;
    name text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('event_ranges'), p_partition);
    SELECT greatest(
        (SELECT max(end_offset) FROM event_ranges WHERE partition = p_partition),
        (SELECT max(last_offset) + 1 FROM archives WHERE partition = p_partition),
        1
    ) INTO first;
    SELECT range_size INTO STRICT size FROM partitions WHERE partition = p_partition;
    WHILE first < p_until LOOP
        name := format('events_%s_%s', p_partition, first);
        EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING DEFAULTS)', name);
        EXECUTE format('ALTER TABLE %I ADD PRIMARY KEY (partition, "offset")', name);
        EXECUTE format('CREATE UNIQUE INDEX %I ON %I (stream_id, stream_version)',
            name || '_stream', name);
        EXECUTE format('CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE '
            'ON %I FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', name);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER events_append_only', name);
        EXECUTE format('ALTER TABLE events ATTACH PARTITION %I '
            'FOR VALUES FROM (%s, %s) TO (%s, %s)',
            name, p_partition, first, p_partition, first + size);
        INSERT INTO event_ranges VALUES (p_partition, first, first + size);
        first := first + size;
    END LOOP;
    RETURN first;
END
$body$
"""

# The one way in which events leave the database: a whole range, behind which there are events,
# and of which every event is in an archive.
DROP_RANGE = """
CREATE FUNCTION drop_archived_events(p_partition integer, p_first bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = {schema}, pg_temp SET lock_timeout = '500ms' AS $body$
DECLARE
    range_end bigint;
    held bigint;
    name text := format('events_%s_%s', p_partition, p_first);
BEGIN
    SELECT end_offset INTO range_end FROM event_ranges
        WHERE partition = p_partition AND first_offset = p_first FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM 1 FROM partitions WHERE partition = p_partition AND next_offset > range_end;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'range % of partition % is not closed', p_first, p_partition
            USING ERRCODE = 'FV005';
    END IF;
    SELECT coalesce(sum(least(last_offset, range_end - 1) - greatest(first_offset, p_first) + 1), 0)
        INTO held FROM archives
        WHERE partition = p_partition AND last_offset >= p_first AND first_offset < range_end;
    IF held <> range_end - p_first THEN
        RAISE EXCEPTION 'range % of partition % is not archived', p_first, p_partition
            USING ERRCODE = 'FV005';
    END IF;
    EXECUTE format('ALTER TABLE events DETACH PARTITION %I', name);
    EXECUTE format('DROP TABLE %I', name);
    DELETE FROM event_ranges WHERE partition = p_partition AND first_offset = p_first;
END
$body$
"""

COPY = (
    """
    UPDATE partitions SET ranged_to = extend_events(partition, greatest(next_offset, 2))
    """,
    """
    INSERT INTO events SELECT partition, "offset", stream_id, stream_version, event_id, type,
        schema_version, payload, payload_sha256, metadata, fence_epoch, recorded_at
        FROM events_before ORDER BY partition, "offset"
    """,
    'INSERT INTO event_ids SELECT event_id, partition, "offset" FROM events_before',
    "DROP TABLE events_before",
)

APPEND_ONLY = tuple(
    statement
    for table in ("events", "event_ids", "archives")
    for statement in (
        f"""
        CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
            FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()
        """,
        f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_append_only",
    )
)

GRANTS = (
    "GRANT SELECT, INSERT ON events, event_ids, archives, archived_streams TO fastvideo_app",
    "GRANT SELECT ON event_ranges TO fastvideo_app",
    "GRANT SELECT, INSERT, UPDATE ON tenant_keys TO fastvideo_app",
    "GRANT DELETE ON commands TO fastvideo_app",
    "REVOKE ALL ON FUNCTION extend_events(integer, bigint) FROM PUBLIC",
    "REVOKE ALL ON FUNCTION drop_archived_events(integer, bigint) FROM PUBLIC",
    "GRANT EXECUTE ON FUNCTION extend_events(integer, bigint) TO fastvideo_app",
    "GRANT EXECUTE ON FUNCTION drop_archived_events(integer, bigint) TO fastvideo_app",
)

# As before, and the offsets have a range and the ids are in their table.
APPEND_FUNCTION = """
CREATE OR REPLACE FUNCTION append_events(
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
    ranged bigint;
    needs_room boolean := false;
    offset_shift bigint;
    version_shift bigint;
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
            RETURNING next_offset - p_partition_counts[i], ranged_to INTO STRICT taken, ranged;
        offset_bases[i] := taken;
        needs_room := needs_room OR taken + p_partition_counts[i] > ranged;
    END LOOP;

    -- Made ahead of need as a rule; whoever has no room makes it. Only once all counters are held:
    -- who holds the lock on ranges must not wait for a counter.
    IF needs_room THEN
        UPDATE partitions SET ranged_to = extend_events(partition, next_offset)
            WHERE partition = ANY (p_partitions) AND next_offset > ranged_to;
    END IF;

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

    -- One command to one stream, as most are: nothing to look up by run, and a twentieth quicker.
    IF cardinality(r_stream) = 1 THEN
        offset_shift := offset_bases[1] + r_offset_shift[1];
        version_shift := version_bases[1] + r_version_shift[1];
        INSERT INTO event_ids
            SELECT e.event_id, p_partitions[1], offset_shift + e.place
            FROM unnest(e_event_id) WITH ORDINALITY AS e (event_id, place);
        -- Read after the counters are held: time rises with the offset.
        recorded := clock_timestamp();
        INSERT INTO events
            SELECT p_partitions[1], offset_shift + e.place, p_streams[1], version_shift + e.place,
                   e.event_id, e.type, e.schema_version, e.payload, e.digest, e.metadata,
                   r_fence_epoch[1], recorded
            FROM unnest(e_event_id, e_type, e_schema_version, e_payload, e_digest, e_metadata)
                WITH ORDINALITY
                AS e (event_id, type, schema_version, payload, digest, metadata, place);
        RETURN;
    END IF;

    INSERT INTO event_ids
        SELECT e.event_id, p_partitions[r_partition[e.run]],
               offset_bases[r_partition[e.run]] + r_offset_shift[e.run] + e.place
        FROM unnest(e_run, e_event_id) WITH ORDINALITY AS e (run, event_id, place);

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


def upgrade() -> None:
    schema = op.get_bind().execute(text("SELECT quote_ident(current_schema())")).scalar_one()
    op.execute("ALTER TABLE events RENAME TO events_before")
    op.execute("ALTER TABLE events_before RENAME CONSTRAINT events_pkey TO events_before_pkey")
    op.execute("DROP TRIGGER events_append_only ON events_before")
    for statement in (
        *TABLES,
        EXTEND.format(schema=schema),
        DROP_RANGE.format(schema=schema),
        *COPY,
        *APPEND_ONLY,
        *GRANTS,
        APPEND_FUNCTION,
    ):
        op.execute(statement)
