-- Rows for the queries of docs/postgres.md: three entities with two checks each. Last month web1 fails for two days and
-- web2 all the time.
INSERT INTO lapwing_data.position VALUES (0, 1, 1000, 1, 'b1', now(), now(), now() - interval '1 year');
INSERT INTO lapwing_data.gap VALUES (now(), 0, 1, 10, 20, now() - interval '2 hours', now() - interval '1 hour', 'b1');

INSERT INTO lapwing_data.pair SELECT 10 * e + c, 'default', (ARRAY['web1', 'web2', 'db1'])[e], (ARRAY['disk', 'cpu'])[c]
FROM generate_series(1, 3) AS e, generate_series(1, 2) AS c;

INSERT INTO lapwing_data.latest SELECT id, 900, now() - interval '1 minute', now() - interval '1 minute', now() - interval '1 hour', 3, 3,
    CASE WHEN entity = 'web2' THEN 2 ELSE 0 END, CASE WHEN entity = 'web2' THEN 64 + 8 ELSE 0 END, 0, 'output'
FROM lapwing_data.pair;

INSERT INTO lapwing_data.event SELECT now() - n * interval '10 minutes', now() - n * interval '10 minutes', id, 900 - n, 1, 1, 0, 0,
    n % 3, CASE WHEN n % 3 > 0 THEN 8 ELSE 16 END, 0.25, 'output', ''
FROM lapwing_data.pair, generate_series(0, 100) AS n;

-- seq counts up with the time. Flags: 4 is a change.
WITH month AS (SELECT date_trunc('month', now()) - interval '1 month' AS begins)
INSERT INTO lapwing_data.state_change SELECT begins + after, begins + after, pair, seq, 0, 0, status, 4, 'output'
FROM month, (VALUES
    (11, 1, interval '-10 days', 0), (12, 2, interval '-10 days', 0), (21, 3, interval '-10 days', 2), (22, 4, interval '-9 days', 2),
    (31, 5, interval '-10 days', 0), (32, 6, interval '-9 days', 0),
    (11, 7, interval '3 days', 2), (12, 8, interval '3 days 12 hours', 1), (12, 9, interval '4 days', 0), (11, 10, interval '5 days', 0)
) AS change (pair, seq, after, status);

INSERT INTO lapwing_data.state_change SELECT now() - n * interval '5 minutes', now(), 21, 800 - n, 0, 0, n % 2, 4 + 64, 'output'
FROM generate_series(0, 9) AS n;

-- Rows that are no changes of the status: the first of a check, the begin of flapping, a deletion, and the first after it.
INSERT INTO lapwing_data.pair VALUES (13, 'default', 'web1', 'load');
INSERT INTO lapwing_data.state_change SELECT now() - after, now(), 13, 800 + n, 0, 0, status, flags, 'output'
FROM (VALUES (1, interval '7 hours', 0, 4), (2, interval '6 hours', 2, 4), (3, interval '5 hours', 2, 4 + 64), (4, interval '4 hours', 0, 4 + 1),
    (5, interval '3 hours', 1, 4), (6, interval '2 hours', 1, 4 + 128)) AS change (n, after, status, flags);

INSERT INTO lapwing_data.notification SELECT now() - n * interval '1 hour', n, 2, 1, 35, 1, true, false, true, 'b1', 'default', 'web1', 'disk',
    'alert', 'mail', 'mail', 'email', ARRAY['alice@example.org', 'bob@example.org'], ARRAY['web2/disk'], CASE WHEN n % 4 = 3 THEN 'failed' ELSE 'ok' END, '', '',
    'd' || n, '0-900-0'
FROM generate_series(1, 5) AS n;

INSERT INTO lapwing_data.definition
SELECT now() - interval '90 days', NULL, 1, 'Entity', 'default', name, jsonb_build_object('entity_class', 'agent',
    'metadata', '{"labels": {"region": "eu", "team": "web"}}'::jsonb, 'subscriptions', '["linux"]'::jsonb)
FROM unnest(ARRAY['web1', 'web2', 'db1']) AS name;
INSERT INTO lapwing_data.definition VALUES
    (now() - interval '90 days', now() - interval '1 day', 1, 'Entity', 'default', 'old1', '{}'),
    (now() - interval '2 days', now() - interval '1 day', 1, 'Entity', 'default', 'new1', '{}'),
    (now() - interval '1 day', NULL, 2, 'Entity', 'default', 'new1', '{}'),
    (now() - interval '1 day', NULL, 3, 'CheckConfig', 'default', 'disk', '{"interval": 60}'),
    (now() - interval '1 day', NULL, 4, 'Silenced', 'default', 'linux:disk', '{"creator": "alice", "reason": "maintenance", "check": "disk"}');
