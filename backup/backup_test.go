package backup

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the backup in testdata anew")

// sample is a backup with something in each part.
func sample(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(w.Manifest(&Manifest{
		Time: time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC), Lapwing: "1.2.3", Backend: "b1", Host: "host-1",
		Log: []Range{{5, 7}, {9, 8}}, Identity: json.RawMessage(`{"cluster":"b1"}`), DatabaseBytes: 1<<19 + 4,
		Entities: 1, Events: 2,
	}))
	check(w.Begin(&Section{Part: PartLog}))
	for seq := uint64(5); seq <= 7; seq++ {
		data := bytes.Repeat([]byte{byte(seq)}, int(seq)*100)
		check(w.Message(&Message{Sequence: seq, Time: int64(seq) * 1000, Data: data}))
	}
	check(w.Begin(&Section{Part: PartLog, Partition: 1}))
	check(w.Begin(&Section{Part: PartDefinitions}))
	check(w.Message(&Message{Sequence: 1, Key: "checks.default.cpu", Data: []byte(`{"old":true}`)}))
	check(w.Message(&Message{Sequence: 2, Key: "checks.default.disk", Data: []byte(`{}`)}))
	check(w.Message(&Message{Sequence: 3, Key: "secret.=.key", Data: []byte{0, 1, 2}}))
	check(w.Message(&Message{Sequence: 4, Key: "checks.default.cpu", Data: []byte(`{"old":false}`)}))
	check(w.Message(&Message{Sequence: 5, Key: "checks.default.disk", Deleted: true}))
	check(w.Begin(&Section{Part: PartAudit}))
	check(w.Message(&Message{Sequence: 40, Data: []byte(`{"user":"admin"}`)}))
	noise := rand.New(rand.NewPCG(1, 2))
	table := make([]byte, 1<<19)
	for i := range table {
		table[i] = byte(noise.Uint32())
	}
	check(w.Begin(&Section{Part: PartDatabase, Name: "000004.sst", Size: int64(len(table))}))
	for rest := table; len(rest) > 0; rest = rest[min(len(rest), 100_001):] {
		_, err := w.Write(rest[:min(len(rest), 100_001)])
		check(err)
	}
	check(w.Begin(&Section{Part: PartDatabase, Name: "MANIFEST-000001", Size: 4}))
	_, err = w.Write([]byte("abcd"))
	check(err)
	check(w.Begin(&Section{Part: PartDatabase, Name: "marker.manifest.000001.MANIFEST-000001"}))
	check(w.Close())
	return out.Bytes()
}

func TestRoundTrip(t *testing.T) {
	b := sample(t)
	s, err := Read(bytes.NewReader(b), nil)
	if err != nil {
		t.Fatal(err)
	}
	definitions := s.Definitions["checks"] == 1 && s.Definitions["secret"] == 1
	if !definitions || s.Audit != 1 || s.Files != 3 || s.Size != int64(len(b)) {
		t.Errorf("summary: %+v", s)
	}
	if got := s.LastDefinition(); got != 4 {
		t.Errorf("newest definition %d, want 4", got)
	}
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		section, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if section.Part == PartDatabase {
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s: %d bytes", section.Name, len(text)))
			continue
		}
		err = eachMessage(r, func() {}, func(m *Message) error {
			if section.Part != PartDefinitions || s.Newest(m) {
				got = append(got, fmt.Sprintf("%s: %d %s %d bytes", section, m.Sequence, m.Key, len(m.Data)))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"event log partition 0: 5  500 bytes", "event log partition 0: 6  600 bytes", "event log partition 0: 7  700 bytes",
		"definitions: 3 secret.=.key 3 bytes", "definitions: 4 checks.default.cpu 13 bytes", "audit log: 40  16 bytes",
		"000004.sst: 524288 bytes", "MANIFEST-000001: 4 bytes", "marker.manifest.000001.MANIFEST-000001: 0 bytes",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestSkip reads no section: the trailer must still be checked.
func TestSkip(t *testing.T) {
	r, err := NewReader(bytes.NewReader(sample(t)))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil; n++ {
		_, err = r.Next()
	}
	if !errors.Is(err, io.EOF) || n != 8 {
		t.Errorf("%v after %d sections", err, n-1)
	}
}

// TestCut reads each beginning of a backup.
func TestCut(t *testing.T) {
	b := sample(t)
	for n := range len(b) {
		if n > 1200 && n < len(b)-400 && n%4099 != 0 {
			continue
		}
		_, err := Read(bytes.NewReader(b[:n]), nil)
		var damage *DamageError
		if !errors.As(err, &damage) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
		if damage.At > int64(n) || damage.Part == "" {
			t.Fatalf("the first %d bytes: %+v", n, damage)
		}
	}
	if _, err := Read(bytes.NewReader(append(b, 0)), nil); err == nil || !strings.Contains(err.Error(), "behind the end") {
		t.Errorf("a byte too many: %v", err)
	}
}

// TestFlip flips a bit of each byte: the error must name a place near it.
func TestFlip(t *testing.T) {
	b := sample(t)
	for i := range b {
		if i > 1200 && i < len(b)-400 && i%1997 != 0 {
			continue
		}
		damaged := bytes.Clone(b)
		damaged[i] ^= 1 << (i % 8)
		_, err := Read(bytes.NewReader(damaged), nil)
		if err == nil {
			t.Fatalf("byte %d: nothing was noticed", i)
		}
		var damage *DamageError
		if errors.As(err, &damage) && damage.At > int64(i) && !strings.Contains(damage.What, "cut off") {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
}

// TestOrder removes, repeats and swaps chunks, each sound by itself.
func TestOrder(t *testing.T) {
	b := sample(t)
	head := bytes.IndexByte(b, '\n') + 1
	var chunks [][]byte
	for rest := b[head:]; len(rest) > 0; {
		n := headerLen + int(uint32(rest[6])|uint32(rest[7])<<8|uint32(rest[8])<<16|uint32(rest[9])<<24)
		chunks = append(chunks, rest[:n])
		rest = rest[n:]
	}
	join := func(chunks ...[]byte) []byte { return append(bytes.Clone(b[:head]), bytes.Join(chunks, nil)...) }
	if _, err := Read(bytes.NewReader(join(chunks...)), nil); err != nil {
		t.Fatal(err)
	}
	for i := range chunks {
		without := append(append([][]byte{}, chunks[:i]...), chunks[i+1:]...)
		twice := append(append(append([][]byte{}, chunks[:i+1]...), chunks[i]), chunks[i+1:]...)
		for what, cs := range map[string][][]byte{"without": without, "twice": twice} {
			if _, err := Read(bytes.NewReader(join(cs...)), nil); err == nil {
				t.Errorf("%s chunk %d: nothing was noticed", what, i)
			}
		}
	}
}

func TestFailure(t *testing.T) {
	var out bytes.Buffer
	w, err := NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Fail(errors.New("the disk is full")); err != nil {
		t.Fatal(err)
	}
	_, err = Read(&out, nil)
	var failed *FailedError
	if !errors.As(err, &failed) || failed.Reason != "the disk is full" {
		t.Errorf("got %v", err)
	}
}

func TestOtherFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "cut off",
		"hello\n":                            "this is no backup",
		"lapwing backup 2\nwhat ever":        "use a later release",
		"lapwing backup 0\n":                 "this is no backup",
		"lapwing backup x\n":                 "this is no backup",
		strings.Repeat("lapwing backup", 99): "this is no backup",
	} {
		if _, err := Read(strings.NewReader(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
	}
}

// TestSections reads backups that are sound in each chunk and have parts that make no sense.
func TestSections(t *testing.T) {
	definitions, audit := Section{Part: PartDefinitions}, Section{Part: PartAudit}
	file := Section{Part: PartDatabase, Name: "a"}
	for want, sections := range map[string][]Section{
		"parts are missing":                        {{Part: PartLog}, definitions, audit},
		"the part comes twice":                     {{Part: PartLog}, definitions, audit, definitions, file},
		"the manifest does not list the partition": {{Part: PartLog, Partition: 1}, definitions, audit, file},
		"this is no name of a file":                {{Part: PartLog}, definitions, audit, {Part: PartDatabase, Name: "../a"}},
		`the part "metrics" is unknown`:            {{Part: "metrics"}},
		"messages 1 to 1 are missing":              {{Part: PartLog}},
	} {
		last := uint64(0)
		if strings.HasPrefix(want, "messages") {
			last = 1
		}
		var out bytes.Buffer
		w, err := NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		err = w.Manifest(&Manifest{Log: []Range{{1, last}}, Identity: json.RawMessage("{}")})
		for i := range sections {
			err = errors.Join(err, w.Begin(&sections[i]))
		}
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(&out, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestFileSize writes less than it has announced.
func TestFileSize(t *testing.T) {
	w, err := NewWriter(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Begin(&Section{Part: PartDatabase, Name: "a", Size: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("abcd")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, errFileSize) {
		t.Errorf("got %v", err)
	}
}

// TestFirstFormat reads a backup in format 1, which all releases must read.
func TestFirstFormat(t *testing.T) {
	path := filepath.Join("testdata", "format-1.backup")
	if *update {
		var out bytes.Buffer
		w, err := NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		m := &Manifest{
			Time: time.Unix(1_700_000_000, 0).UTC(), Lapwing: "1", Backend: "b", Log: []Range{{3, 3}},
			Identity: json.RawMessage(`{}`),
		}
		event := bytes.Repeat([]byte("event "), 99)
		err = errors.Join(w.Manifest(m),
			w.Begin(&Section{Part: PartLog}), w.Message(&Message{Sequence: 3, Time: 4, Data: event}),
			w.Begin(&Section{Part: PartDefinitions}), w.Message(&Message{Sequence: 7, Key: "checks.a.b", Data: []byte("{}")}),
			w.Begin(&Section{Part: PartAudit}), w.Begin(&Section{Part: PartDatabase, Name: "x", Size: 3}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write([]byte("abc"))
		if err := errors.Join(err, w.Close(), os.WriteFile(path, out.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := Read(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Backend != "b" || s.Definitions["checks"] != 1 || s.Files != 1 || s.Log[0] != (Range{3, 3}) || s.Bytes != 620 {
		t.Errorf("got %+v", s)
	}
}

// FuzzRead must neither panic nor take damaged bytes for a backup.
func FuzzRead(f *testing.F) {
	whole := sample(f)
	short, err := os.ReadFile(filepath.Join("testdata", "format-1.backup"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(short)
	f.Add(whole[:300])
	f.Add(short[:len(short)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Read(bytes.NewReader(b), nil)
		if err == nil && s.Size != int64(len(b)) {
			t.Errorf("%d bytes of %d were read", s.Size, len(b))
		}
	})
}
