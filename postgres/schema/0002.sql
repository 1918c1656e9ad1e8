-- Why changes are missing, and how many, if not all of the messages.
ALTER TABLE lapwing_data.gap
    ADD COLUMN changes int,
    ADD COLUMN reason  text NOT NULL DEFAULT 'the journal does not have them';

CREATE OR REPLACE VIEW lapwing.gaps AS
SELECT noticed, partition, since, until, to_seq - from_seq AS messages, writer, changes, reason FROM lapwing_data.gap;

-- Since when the owner of a partition waits for another member to write what its own journal does not have; NULL if it does
-- not wait.
ALTER TABLE lapwing_data.position ADD COLUMN wanted timestamptz;
