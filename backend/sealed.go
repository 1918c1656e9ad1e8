package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strings"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
)

var errSeal = errors.New("the file fails its checksum")

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

// readSealed reads what writeSealed wrote: fs.ErrNotExist if it is not there, errSeal if it is damaged.
func readSealed(path string, v any) error {
	b, err := os.ReadFile(path)
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
