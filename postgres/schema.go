package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// schemaVersion is the newest file of schema/.
const schemaVersion = 2

// migrationLock is the key of the advisory lock under which the schema and the partitions of tables are changed.
const migrationLock = 0x6c617077696e67

// oldestServer is the oldest PostgreSQL that the schema works with.
const oldestServer = 140000

// NewerSchemaError says that a newer release has changed the schema.
type NewerSchemaError struct{ Version int }

func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("the schema in PostgreSQL has version %d, and this release knows %d: upgrade this backend", e.Version, schemaVersion)
}

const (
	// askTime bounds the questions about the schema, and migrationTime its change: tables may be large.
	askTime       = 10 * time.Second
	migrationTime = time.Hour
)

// migrate brings the schema to schemaVersion. Several backends may call it at once.
func migrate(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, migrationTime)
	defer cancel()
	asking, answered := context.WithTimeout(ctx, askTime)
	defer answered()
	var encoding string
	var server, version int
	err := conn.QueryRow(asking, `SELECT current_setting('server_encoding'), current_setting('server_version_num')::int`).
		Scan(&encoding, &server)
	switch {
	case err != nil:
		return fmt.Errorf("ask PostgreSQL for its version: %w", err)
	case server < oldestServer:
		return fmt.Errorf("PostgreSQL has version %d, at least %d is needed", server/10000, oldestServer/10000)
	case encoding != "UTF8":
		return fmt.Errorf("the database has the encoding %s, UTF8 is needed", encoding)
	}
	if version, err = storedVersion(asking, conn); err != nil || version == schemaVersion {
		return err
	}
	if version > schemaVersion {
		return &NewerSchemaError{version}
	}
	return inTransaction(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
			return fmt.Errorf("wait for the right to change the schema: %w", err)
		}
		version, err := storedVersion(ctx, conn) // another backend may have changed it
		if err != nil {
			return err
		}
		if version == 0 {
			// An administrator may have made the schemas. IF NOT EXISTS would need the right to make them even then.
			_, err := tx.Exec(ctx, `DO $$ BEGIN
					IF to_regnamespace('lapwing_data') IS NULL THEN CREATE SCHEMA lapwing_data; END IF;
					IF to_regnamespace('lapwing') IS NULL THEN CREATE SCHEMA lapwing; END IF;
				END $$;
				CREATE TABLE lapwing_data.migration (version int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())`)
			if err != nil {
				return fmt.Errorf("create the schemas lapwing and lapwing_data: %w", err)
			}
		}
		for v := version + 1; v <= schemaVersion; v++ {
			file, err := schemaFiles.ReadFile(fmt.Sprintf("schema/%04d.sql", v))
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, string(file), pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("change the schema to version %d: %w", v, err)
			}
			if _, err := tx.Exec(ctx, "INSERT INTO lapwing_data.migration (version) VALUES ($1)", v); err != nil {
				return fmt.Errorf("note version %d of the schema: %w", v, err)
			}
		}
		return nil
	})
}

// storedVersion returns the version of the schema; 0 if there is none.
func storedVersion(ctx context.Context, conn *pgx.Conn) (version int, err error) {
	exists, err := tableExists(ctx, conn, "migration")
	if err == nil && exists {
		err = conn.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM lapwing_data.migration").Scan(&version)
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the schema: %w", err)
	}
	return version, nil
}

// readSecret returns what pairIDs needs.
func readSecret(ctx context.Context, conn *pgx.Conn) (secret []byte, err error) {
	if err = conn.QueryRow(ctx, "SELECT key FROM lapwing_data.secret").Scan(&secret); err != nil {
		return nil, fmt.Errorf("read the secret of the ids: %w", err)
	}
	return secret, nil
}

// tableExists looks into the catalog: in a transaction that has waited for an advisory lock, to_regclass may not know yet
// what another one has created meanwhile.
func tableExists(ctx context.Context, conn *pgx.Conn, name string) (exists bool, err error) {
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
		ON n.oid = c.relnamespace WHERE n.nspname = 'lapwing_data' AND c.relname = $1)`, name).Scan(&exists)
	return exists, err
}

// inTransaction commits what do did, or nothing of it.
func inTransaction(ctx context.Context, conn *pgx.Conn, do func(pgx.Tx) error) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	if err := do(tx); err != nil {
		if rollback := tx.Rollback(ctx); rollback != nil && !errors.Is(rollback, pgx.ErrTxClosed) {
			return errors.Join(err, fmt.Errorf("end the transaction: %w", rollback))
		}
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
