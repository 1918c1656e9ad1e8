package wire

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorded is a message that a Sensu agent or backend sent.
type recorded struct {
	typ     string
	enc     Encoding
	message []byte
}

func readFrames(tb testing.TB) []recorded {
	tb.Helper()
	var all []recorded
	for enc, name := range map[Encoding]string{Protobuf: "protobuf", JSON: "json"} {
		f, err := os.Open(filepath.Join("..", "resource", "testdata", "frames", name+".jsonl"))
		if err != nil {
			tb.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var line struct {
				Type     string `json:"type"`
				FrameHex string `json:"frame_hex"`
			}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				tb.Fatal(err)
			}
			message, err := hex.DecodeString(line.FrameHex)
			if err != nil {
				tb.Fatal(err)
			}
			all = append(all, recorded{line.Type, enc, message})
		}
		if err := lines.Err(); err != nil {
			tb.Fatal(err)
		}
	}
	if len(all) == 0 {
		tb.Fatal("no frames")
	}
	return all
}
