package backup

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Summary is what a sound backup has.
type Summary struct {
	Manifest
	Definitions map[string]int // by kind
	Audit       int            // entries of the audit log
	Files       int            // of the state database
	Size        int64          // of the backup, in bytes
	Bytes       int64          // of its data, in bytes, before it was compressed
	SHA256      string         // of all but the trailer

	newest map[string]uint64 // number of the newest value of each definition
}

// Newest reports whether a message of PartDefinitions has the value that counts.
func (s *Summary) Newest(m *Message) bool { return !m.Deleted && s.newest[m.Key] == m.Sequence }

// LastDefinition returns the number of the newest definition.
func (s *Summary) LastDefinition() (last uint64) {
	for _, n := range s.newest {
		last = max(last, n)
	}
	return last
}

// Read reads all of a backup and checks it. progress, if not nil, is called now and then with the part at which the
// reading is, and with the number of bytes of the file that were read.
func Read(in io.Reader, progress func(part string, bytes int64)) (*Summary, error) {
	r, err := NewReader(in)
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(string, int64) {}
	}
	s := &Summary{Manifest: r.Manifest, Definitions: map[string]int{}, newest: map[string]uint64{}}
	have := map[string]int{} // sections by part; each partition is one
	for {
		section, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if have[section.Part]++; section.Part == PartLog {
			have[section.String()]++
		}
		if have[section.String()] > 1 && section.Part != PartDatabase {
			return nil, r.damaged("the part comes twice")
		}
		if err := s.read(r, section, func() { progress(section.Part, r.Size()) }); err != nil {
			return nil, err
		}
	}
	if have[PartLog] != len(s.Log) || have[PartDefinitions] != 1 || have[PartAudit] != 1 || have[PartDatabase] == 0 {
		return nil, r.damaged("parts are missing")
	}
	for key := range s.newest {
		kind, _, _ := strings.Cut(key, ".")
		s.Definitions[kind]++
	}
	s.Files, s.Size, s.Bytes, s.SHA256 = have[PartDatabase], r.Size(), r.Bytes(), r.seen.SHA256
	return s, nil
}

func (s *Summary) read(r *Reader, section *Section, progress func()) error {
	switch section.Part {
	case PartLog:
		return s.readLog(r, s.Log[section.Partition], progress)
	case PartDefinitions:
		return eachMessage(r, progress, func(m *Message) error {
			if delete(s.newest, m.Key); !m.Deleted {
				s.newest[m.Key] = m.Sequence
			}
			return nil
		})
	case PartAudit:
		return eachMessage(r, progress, func(*Message) error { s.Audit++; return nil })
	case PartDatabase:
		return readFile(r, progress)
	}
	return r.damaged(fmt.Sprintf("the part %q is unknown: a later release has made the backup", section.Part))
}

// readLog reads the messages of a partition: all that the manifest names, and no others.
func (s *Summary) readLog(r *Reader, want Range, progress func()) error {
	next := want.First
	err := eachMessage(r, progress, func(m *Message) error {
		if m.Sequence != next || next > want.Last {
			return r.damaged(fmt.Sprintf("message %d comes, and not %d", m.Sequence, next))
		}
		next++
		return nil
	})
	if err == nil && next != want.Last+1 {
		return r.damaged(fmt.Sprintf("messages %d to %d are missing", next, want.Last))
	}
	return err
}

func eachMessage(r *Reader, progress func(), f func(*Message) error) error {
	var m Message
	for {
		err := r.Message(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(&m)
		}
		if err != nil {
			return err
		}
		progress()
	}
}

func readFile(r *Reader, progress func()) error {
	var buf [32 << 10]byte
	for {
		_, err := r.Read(buf[:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		progress()
	}
}
