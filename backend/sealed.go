package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
)

var errSeal = errors.New("the file fails its checksum")

// maxSealed bounds a sealed document. The largest lists the files of the state database.
const maxSealed = 64 << 20

// writeSealed puts a JSON document in place, synced, with its checksum in a second line.
func writeSealed(path string, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		err = blocks.WriteFile(path, fmt.Appendf(nil, "%s\ncrc32 %08x\n", text, crc32.ChecksumIEEE(text)))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// readSealed reads what writeSealed wrote. It fails with fs.ErrNotExist if there is nothing, with errSeal if the document is damaged,
// and with plainfile.ErrIrregular if there is something else than a file.
func readSealed(path string, v any) error {
	b, err := plainfile.Read(path, maxSealed)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	text, _, _ := strings.Cut(string(b), "\n")
	if string(b) != fmt.Sprintf("%s\ncrc32 %08x\n", text, crc32.ChecksumIEEE([]byte(text))) {
		return fmt.Errorf("read %s: %w", path, errSeal)
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
