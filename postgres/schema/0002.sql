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
