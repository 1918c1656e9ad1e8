-- Tables are in lapwing_data and may change with any release. The views in schema lapwing are for reports; their columns
-- stay.
COMMENT ON SCHEMA lapwing IS 'Views for reports. Their columns stay the same in later releases.';

-- How far each partition of the event log is written. A transaction with rows of a partition moves its position.
CREATE TABLE lapwing_data.position (
    partition int PRIMARY KEY,
    stream    bigint NOT NULL,      -- the log that seq is of
    seq       bigint NOT NULL,      -- the newest message whose changes are written
    roster    bigint NOT NULL,      -- the roster by which the writer owned the partition
    writer    text NOT NULL,
    received  timestamptz,          -- when the newest event was received
    written   timestamptz NOT NULL,
    complete  timestamptz           -- from when on all changes of state are here; NULL until each check's state is
) WITH (fillfactor = 10);

CREATE TABLE lapwing_data.gap (
    noticed   timestamptz NOT NULL DEFAULT now(),
    partition int NOT NULL,
    stream    bigint NOT NULL,
    from_seq  bigint NOT NULL,      -- the newest message before the gap
    to_seq    bigint NOT NULL,      -- the last message in it
    since     timestamptz,          -- when the newest event before it was received
    until     timestamptz,          -- when the first event behind it was received
    writer    text NOT NULL
);

-- The id is a hash of the three names, so that writers need not look it up.
CREATE TABLE lapwing_data.pair (
    id        bigint PRIMARY KEY,
    namespace text NOT NULL,
    entity    text NOT NULL,
    "check"   text NOT NULL,
    UNIQUE (namespace, entity, "check")
);

-- Each row is rewritten with each event of its pair. Free space in the pages and no index but the key keep these
-- updates inside their pages (HOT).
CREATE TABLE lapwing_data.latest (
    pair_id     bigint PRIMARY KEY,
    seq         bigint NOT NULL,
    received    timestamptz NOT NULL,
    executed    timestamptz,
    last_ok     timestamptz,
    occurrences bigint NOT NULL,
    watermark   bigint NOT NULL,
    status      int NOT NULL,
    flags       int NOT NULL,
    partition   int NOT NULL,
    output      text NOT NULL        -- its beginning
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.2
);

CREATE TABLE lapwing_data.event (
    received    timestamptz NOT NULL,
    executed    timestamptz,
    pair_id     bigint NOT NULL,
    seq         bigint NOT NULL,
    occurrences bigint NOT NULL,
    watermark   bigint NOT NULL,
    sub         int NOT NULL,
    partition   int NOT NULL,
    status      int NOT NULL,
    flags       int NOT NULL,
    duration    real NOT NULL,       -- seconds
    output      text NOT NULL,
    body        bytea NOT NULL       -- the event in protobuf, without its entity if that has a definition
) PARTITION BY RANGE (received);
CREATE INDEX event_received ON lapwing_data.event USING brin (received) WITH (pages_per_range = 32, autosummarize = on);

-- A row without the flag 4 repeats a state that has not changed: where a gap ends, and the newest one of a month whose rows
-- were removed.
CREATE TABLE lapwing_data.state_change (
    received    timestamptz NOT NULL,
    executed    timestamptz,
    pair_id     bigint NOT NULL,
    seq         bigint NOT NULL,
    sub         int NOT NULL,
    partition   int NOT NULL,
    status      int NOT NULL,
    flags       int NOT NULL,
    output      text NOT NULL        -- its beginning
) PARTITION BY RANGE (received);
CREATE INDEX state_change_pair ON lapwing_data.state_change (pair_id, received);
CREATE INDEX state_change_received ON lapwing_data.state_change USING brin (received);

CREATE TABLE lapwing_data.notification (
    at          timestamptz NOT NULL,
    number      bigint NOT NULL,     -- counts up on each member
    status      int NOT NULL,
    attempt     int NOT NULL,
    millis      int NOT NULL,
    events      int NOT NULL,
    incident    boolean NOT NULL,
    resolution  boolean NOT NULL,
    final       boolean NOT NULL,
    member      text NOT NULL,
    namespace   text NOT NULL,
    entity      text NOT NULL,
    "check"     text NOT NULL,
    pipeline    text NOT NULL,
    workflow    text NOT NULL,
    handler     text NOT NULL,
    type        text NOT NULL,
    recipients  text[] NOT NULL,
    merged      text[] NOT NULL,     -- ENTITY/CHECK of the events that went out with it, the first 200
    result      text NOT NULL,
    error       text NOT NULL,
    output      text NOT NULL,
    delivery    text NOT NULL,
    event       text NOT NULL
) PARTITION BY RANGE (at);
CREATE INDEX notification_pair ON lapwing_data.notification (namespace, entity, "check", at);
CREATE INDEX notification_at ON lapwing_data.notification USING brin (at);

CREATE TABLE lapwing_data.notification_position (
    member text PRIMARY KEY,
    number bigint NOT NULL
);

-- Definitions as they were at each time: entities, checks and silences.
CREATE TABLE lapwing_data.definition (
    since     timestamptz NOT NULL,
    until     timestamptz,           -- NULL while it is so
    hash      bigint NOT NULL,
    kind      text NOT NULL,
    namespace text NOT NULL,
    name      text NOT NULL,
    object    jsonb NOT NULL
);
CREATE UNIQUE INDEX definition_present ON lapwing_data.definition (kind, namespace, name) WHERE until IS NULL;
CREATE INDEX definition_until ON lapwing_data.definition (until) WHERE until IS NOT NULL;
CREATE INDEX definition_since ON lapwing_data.definition (kind, namespace, name, since);

-- The names of flags.
CREATE FUNCTION lapwing_data.state_of(status int, flags int) RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE sql RETURN
    CASE WHEN flags & 1 <> 0 THEN 'deleted' WHEN flags & 64 <> 0 THEN 'flapping' WHEN status = 0 THEN 'passing' ELSE 'failing' END;

CREATE VIEW lapwing.entities AS
SELECT namespace, name, since, until, object ->> 'entity_class' AS class,
    coalesce(object #> '{metadata,labels}', '{}') AS labels,
    coalesce(object #> '{metadata,annotations}', '{}') AS annotations,
    coalesce(object -> 'subscriptions', '[]') AS subscriptions, object AS definition
FROM lapwing_data.definition WHERE kind = 'Entity';

CREATE VIEW lapwing.checks AS
SELECT namespace, name, since, until, coalesce(object #> '{metadata,labels}', '{}') AS labels,
    coalesce(object #> '{metadata,annotations}', '{}') AS annotations,
    (object ->> 'interval')::int AS interval, object ->> 'cron' AS cron,
    coalesce(object -> 'subscriptions', '[]') AS subscriptions, coalesce(object -> 'handlers', '[]') AS handlers,
    object AS definition
FROM lapwing_data.definition WHERE kind = 'CheckConfig';

CREATE VIEW lapwing.silences AS
SELECT namespace, name, since, until, object ->> 'creator' AS creator, object ->> 'reason' AS reason,
    object ->> 'check' AS "check", object ->> 'subscription' AS subscription,
    coalesce((object ->> 'acknowledgement')::boolean, false) AS acknowledgement, object AS definition
FROM lapwing_data.definition WHERE kind = 'Silenced';

CREATE VIEW lapwing.current_events AS
SELECT p.namespace, p.entity, p."check", l.status, lapwing_data.state_of(l.status, l.flags) AS state, l.occurrences,
    l.watermark AS occurrences_watermark, l.executed, l.received, l.last_ok, l.flags & 32 <> 0 AS silenced,
    l.flags & 128 <> 0 AS missing, l.output, e.labels AS entity_labels, c.labels AS check_labels
FROM lapwing_data.latest l
JOIN lapwing_data.pair p ON p.id = l.pair_id
LEFT JOIN lapwing.entities e ON e.namespace = p.namespace AND e.name = p.entity AND e.until IS NULL
LEFT JOIN lapwing.checks c ON c.namespace = p.namespace AND c.name = p."check" AND c.until IS NULL;

CREATE VIEW lapwing.state_changes AS
SELECT s.received, p.namespace, p.entity, p."check", s.status, lapwing_data.state_of(s.status, s.flags) AS state,
    s.flags & 32 <> 0 AS silenced, s.flags & 128 <> 0 AS missing, s.executed, s.output,
    s.partition || '-' || s.seq || '-' || s.sub AS event, s.partition, s.seq, s.sub
FROM lapwing_data.state_change s JOIN lapwing_data.pair p ON p.id = s.pair_id WHERE s.flags & 4 <> 0;

CREATE VIEW lapwing.events AS
SELECT v.received, p.namespace, p.entity, p."check", v.status, lapwing_data.state_of(v.status, v.flags) AS state,
    v.occurrences, v.executed, v.duration, v.flags & 8 <> 0 AS incident, v.flags & 16 <> 0 AS resolution,
    v.flags & 32 <> 0 AS silenced, v.flags & 128 <> 0 AS missing, v.flags & 256 <> 0 AS metrics, v.output,
    v.partition || '-' || v.seq || '-' || v.sub AS event, v.partition, v.seq, v.sub
FROM lapwing_data.event v JOIN lapwing_data.pair p ON p.id = v.pair_id;

CREATE VIEW lapwing.notifications AS
SELECT at, namespace, entity, "check", status, incident, resolution, pipeline, workflow, handler, type, recipients,
    result, attempt, final, millis, events, merged, error, output, delivery, event, member
FROM lapwing_data.notification;

CREATE VIEW lapwing.gaps AS
SELECT noticed, partition, since, until, to_seq - from_seq AS messages, writer FROM lapwing_data.gap;

CREATE VIEW lapwing.lag AS
SELECT partition, received, written, writer, clock_timestamp() - written AS since_written FROM lapwing_data.position;
