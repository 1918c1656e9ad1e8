package whisper

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lapwing-monitoring/lapwing/metric/name"
)

// Bounds of a list of names.
const (
	maxNames     = 20_000_000
	maxNameBytes = 64 << 10
)

// ReadTaggedNames reads a list of series' names and returns those with tags by the hash that carbon names their files
// by. The list has a name a line, or is a JSON array as Graphite's /tags/findSeries and /metrics/index.json answer.
// Names that cannot be read are left out.
func ReadTaggedNames(r io.Reader) (map[string]string, error) {
	b := bufio.NewReaderSize(r, maxNameBytes)
	names := map[string]string{}
	add := func(sent string) error {
		if !name.HasTags(sent) {
			return nil
		}
		if len(sent) > maxNameBytes {
			return fmt.Errorf("read names of tagged series: a name has %d bytes, and may have %d", len(sent), maxNameBytes)
		}
		if len(names) >= maxNames {
			return fmt.Errorf("read names of tagged series: there are more than %d", maxNames)
		}
		if stored, err := canonical(sent); err == nil {
			names[NameHash(stored)] = stored
		}
		return nil
	}
	if first, err := firstByte(b); err == nil && first == '[' {
		return names, readArray(b, add)
	}
	for n := 1; ; n++ {
		line, err := b.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("read names of tagged series: line %d has more than %d bytes", n, maxNameBytes)
		}
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read names of tagged series: %w", err)
		}
		if aerr := add(strings.TrimSpace(string(line))); aerr != nil {
			return nil, aerr
		}
		if err == io.EOF {
			return names, nil
		}
	}
}

// canonical returns the name under which the store has a series: tags in order, and a path without empty nodes.
func canonical(sent string) (string, error) {
	raw := []byte(sent)
	if !name.HasTags(raw) {
		raw = name.Clean(raw)
	}
	stored, err := name.Canonical(raw)
	return string(stored), err
}

// firstByte returns the first byte that is no white space, and leaves it to be read.
func firstByte(b *bufio.Reader) (byte, error) {
	for {
		c, err := b.ReadByte()
		if err != nil {
			return 0, err
		}
		if !strings.ContainsRune(" \t\r\n", rune(c)) {
			return c, b.UnreadByte()
		}
	}
}

func readArray(r io.Reader, add func(string) error) error {
	d := json.NewDecoder(r)
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("read names of tagged series: %w", err)
	}
	for d.More() {
		var name string
		if err := d.Decode(&name); err != nil {
			return fmt.Errorf("read names of tagged series: %w", err)
		}
		if err := add(name); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("read names of tagged series: %w", err)
	}
	return nil
}
