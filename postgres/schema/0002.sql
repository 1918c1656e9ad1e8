-- Why changes are missing, and how many, if not all of the messages.
ALTER TABLE lapwing_data.gap
    ADD COLUMN changes int,
    ADD COLUMN reason  text NOT NULL DEFAULT 'the journal does not have them';

CREATE OR REPLACE VIEW lapwing.gaps AS
SELECT noticed, partition, since, until, to_seq - from_seq AS messages, writer, changes, reason FROM lapwing_data.gap;

-- Since when the owner of a partition waits for another member to write what its own journal does not have; NULL if it does
-- not wait.
ALTER TABLE lapwing_data.position ADD COLUMN wanted timestamptz;

-- Whether the latest events and states of all checks are to be written anew, because changes are missing. complete stays: what
-- came before the gap is right.
ALTER TABLE lapwing_data.position ADD COLUMN due boolean NOT NULL DEFAULT false;

-- Up to when changes of definitions are written.
CREATE TABLE lapwing_data.definition_position (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    written timestamptz NOT NULL
);

-- The ids of pairs are a hash with a secret: names can be chosen, and two with the same id would share their rows. The SQL
-- below is what pairIDs.id does. Rows of before get new ids.
CREATE TABLE lapwing_data.secret (key bytea NOT NULL);
INSERT INTO lapwing_data.secret VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
CREATE TABLE lapwing_data.renamed AS
SELECT id AS old, ('x' || encode(substring(sha256(key
    || int4send(octet_length(namespace)) || convert_to(namespace, 'UTF8')
    || int4send(octet_length(entity)) || convert_to(entity, 'UTF8')
    || int4send(octet_length("check")) || convert_to("check", 'UTF8')) FOR 8), 'hex'))::bit(64)::bigint AS new
FROM lapwing_data.pair, lapwing_data.secret;
UPDATE lapwing_data.latest SET pair_id = new FROM lapwing_data.renamed WHERE pair_id = old;
UPDATE lapwing_data.event SET pair_id = new FROM lapwing_data.renamed WHERE pair_id = old;
UPDATE lapwing_data.state_change SET pair_id = new FROM lapwing_data.renamed WHERE pair_id = old;
UPDATE lapwing_data.pair SET id = new FROM lapwing_data.renamed WHERE id = old;
DROP TABLE lapwing_data.renamed;

-- Statuses go up to 4294967295 on Windows; the tables have them as int, where those above 2147483647 are negative.
CREATE FUNCTION lapwing_data.whole(status int) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql RETURN
    CASE WHEN status < 0 THEN status + 4294967296 ELSE status END;

DROP VIEW lapwing.current_events, lapwing.state_changes, lapwing.events;

CREATE VIEW lapwing.current_events AS
SELECT p.namespace, p.entity, p."check", lapwing_data.whole(l.status) AS status, lapwing_data.state_of(l.status, l.flags) AS state,
    l.occurrences, l.watermark AS occurrences_watermark, l.executed, l.received, l.last_ok, l.flags & 32 <> 0 AS silenced,
    l.flags & 128 <> 0 AS missing, l.output, e.labels AS entity_labels, c.labels AS check_labels
FROM lapwing_data.latest l
JOIN lapwing_data.pair p ON p.id = l.pair_id
LEFT JOIN lapwing.entities e ON e.namespace = p.namespace AND e.name = p.entity AND e.until IS NULL
LEFT JOIN lapwing.checks c ON c.namespace = p.namespace AND c.name = p."check" AND c.until IS NULL;

CREATE VIEW lapwing.state_changes AS
SELECT s.received, p.namespace, p.entity, p."check", lapwing_data.whole(s.status) AS status,
    lapwing_data.state_of(s.status, s.flags) AS state, s.flags & 32 <> 0 AS silenced, s.flags & 128 <> 0 AS missing, s.executed,
    s.output, s.partition || '-' || s.seq || '-' || s.sub AS event, s.partition, s.seq, s.sub
FROM lapwing_data.state_change s JOIN lapwing_data.pair p ON p.id = s.pair_id WHERE s.flags & 4 <> 0;

CREATE VIEW lapwing.events AS
SELECT v.received, p.namespace, p.entity, p."check", lapwing_data.whole(v.status) AS status,
    lapwing_data.state_of(v.status, v.flags) AS state, v.occurrences, v.executed, v.duration, v.flags & 8 <> 0 AS incident,
    v.flags & 16 <> 0 AS resolution, v.flags & 32 <> 0 AS silenced, v.flags & 128 <> 0 AS missing, v.flags & 256 <> 0 AS metrics,
    v.output, v.partition || '-' || v.seq || '-' || v.sub AS event, v.partition, v.seq, v.sub
FROM lapwing_data.event v JOIN lapwing_data.pair p ON p.id = v.pair_id;

-- Events that were received up to then were written from an earlier log, of which this one is a copy: from a backup.
ALTER TABLE lapwing_data.position ADD COLUMN copied timestamptz;
