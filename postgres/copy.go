package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// rows encodes rows in PostgreSQL's binary format of COPY. It is written by hand because it is most of what a projected
// event costs: pgx.CopyFrom takes each value as an interface, at three times the CPU.
type rows struct {
	columns int
	n       int
	b       []byte
}

// copyHeader is the signature, no flags, and no extension.
const copyHeader = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"

func (r *rows) reset(columns int) {
	r.columns, r.n, r.b = columns, 0, append(r.b[:0], copyHeader...)
}

func (r *rows) begin() {
	r.n++
	r.b = binary.BigEndian.AppendUint16(r.b, uint16(r.columns))
}

func (r *rows) null() { r.b = append(r.b, 0xff, 0xff, 0xff, 0xff) }

func (r *rows) int4(v int32) {
	r.b = binary.BigEndian.AppendUint32(append(r.b, 0, 0, 0, 4), uint32(v))
}

func (r *rows) int8(v int64) {
	r.b = binary.BigEndian.AppendUint64(append(r.b, 0, 0, 0, 8), uint64(v))
}

func (r *rows) float4(v float32) {
	r.b = binary.BigEndian.AppendUint32(append(r.b, 0, 0, 0, 4), math.Float32bits(v))
}

func (r *rows) bytes(v []byte) {
	r.b = append(binary.BigEndian.AppendUint32(r.b, uint32(len(v))), v...)
}

// text writes what text keeps of v.
func (r *rows) text(v []byte) {
	if plain(v) {
		r.bytes(v)
		return
	}
	r.bytes([]byte(text(v)))
}

// millis writes a time in Unix milliseconds as timestamptz; NULL for 0.
func (r *rows) millis(v int64) {
	if v == 0 {
		r.null()
		return
	}
	r.int8(microseconds(v))
}

// epoch2000 is the begin of PostgreSQL's time, in Unix milliseconds.
const epoch2000 = 946684800_000

// The years of times that PostgreSQL takes, with a margin, in Unix milliseconds.
var firstTime, lastTime = time.Date(-4000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), time.Date(290000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// microseconds returns a time in Unix milliseconds as PostgreSQL has it: microseconds since 2000.
func microseconds(millis int64) int64 {
	return (min(max(millis, firstTime), lastTime) - epoch2000) * 1000
}

// seconds returns a time in Unix seconds in milliseconds.
func seconds(v int64) int64 {
	return min(max(v, firstTime/1000), lastTime/1000) * 1000
}

// copyTo sends the rows to a table.
func (r *rows) copyTo(ctx context.Context, tx pgx.Tx, table, columns string) error {
	if r.n == 0 {
		return nil
	}
	all := binary.BigEndian.AppendUint16(r.b, math.MaxUint16) // the end
	r.b = all[:len(r.b)]
	tag, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(all), "COPY "+table+" ("+columns+") FROM STDIN BINARY")
	if err != nil {
		return fmt.Errorf("copy %d rows to %s: %w", r.n, table, err)
	}
	if n := tag.RowsAffected(); n != int64(r.n) {
		return fmt.Errorf("copy %d rows to %s: it took %d", r.n, table, n)
	}
	return nil
}

// plain reports whether PostgreSQL takes a text as it is.
func plain(v []byte) bool { return utf8.Valid(v) && bytes.IndexByte(v, 0) < 0 }

// text returns a text that PostgreSQL takes: without NUL, and in UTF-8. What it does not take becomes U+FFFD.
func text[T ~string | ~[]byte](v T) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(v), "\ufffd"), "\x00", "\ufffd")
}

// beginning returns the first bytes of a text, without a part of a character.
func beginning(v []byte, most int) []byte {
	if len(v) <= most {
		return v
	}
	for most > 0 && !utf8.RuneStart(v[most]) {
		most--
	}
	return v[:most]
}
