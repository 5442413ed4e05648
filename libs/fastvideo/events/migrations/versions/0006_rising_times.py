"""Times of recording rise with the offset, also when the database's clock is set back."""

from collections.abc import Sequence

from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TIME_OF_THE_LAST = (
    # Whoever waits for this lock holds up every append behind it: it waits for appends that are
    # under way, and lets others pass as long as a backup reads the table.
    """
    DO $body$ BEGIN
        SET LOCAL lock_timeout = '200ms';
        LOOP
            BEGIN
                LOCK TABLE partitions IN ACCESS EXCLUSIVE MODE;
                EXIT;
            EXCEPTION WHEN lock_not_available THEN
                PERFORM pg_sleep(1);
            END;
        END LOOP;
        SET LOCAL lock_timeout TO DEFAULT;
    END $body$
    """,
    """
    ALTER TABLE partitions ADD COLUMN recorded_at timestamptz NOT NULL DEFAULT '-infinity'
    """,
    """
    UPDATE partitions p SET recorded_at = e.recorded_at FROM events e
        WHERE e.partition = p.partition AND e."offset" = p.next_offset - 1
    """,
)

# As before, and each partition has the time of its last event, behind which no other is.
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
    recordeds timestamptz[];
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
        UPDATE partitions SET next_offset = next_offset + p_partition_counts[i],
                recorded_at = greatest(recorded_at, clock_timestamp())
            WHERE partition = p_partitions[i]
            RETURNING next_offset - p_partition_counts[i], ranged_to, recorded_at
                INTO STRICT taken, ranged, recorded;
        offset_bases[i] := taken;
        recordeds[i] := recorded;
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

    INSERT INTO events
        SELECT p_partitions[r_partition[e.run]],
               offset_bases[r_partition[e.run]] + r_offset_shift[e.run] + e.place,
               p_streams[r_stream[e.run]],
               version_bases[r_stream[e.run]] + r_version_shift[e.run] + e.place,
               e.event_id, e.type, e.schema_version, e.payload, e.digest, e.metadata,
               r_fence_epoch[e.run], recordeds[r_partition[e.run]]
        FROM unnest(e_run, e_event_id, e_type, e_schema_version, e_payload, e_digest, e_metadata)
            WITH ORDINALITY
            AS e (run, event_id, type, schema_version, payload, digest, metadata, place);
END
$body$
"""


def upgrade() -> None:
    for statement in (*TIME_OF_THE_LAST, APPEND_FUNCTION):
        op.execute(statement)
