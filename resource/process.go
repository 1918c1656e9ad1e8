package resource

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// Sensu's protobuf of a process has only the name. The field numbers from 100 on are lapwing's own: Sensu's programs skip
// them, and fields that Sensu may have below 100 are skipped here.

// Process is a process on a host.
type Process struct {
	Name          string  `json:"name" pb:"1"`
	PID           int32   `json:"pid" pb:"100"`
	PPID          int32   `json:"ppid" pb:"101"`
	Status        string  `json:"status" pb:"102"` // as ps shows it, such as Ss
	Background    bool    `json:"background" pb:"103"`
	Running       bool    `json:"running" pb:"104"`
	Created       int64   `json:"created" pb:"105"`        // Unix seconds
	MemoryPercent float64 `json:"memory_percent" pb:"106"` // 1 is all of the host's memory
	CPUPercent    float64 `json:"cpu_percent" pb:"107"`    // 1 is one processor, on average since the process was created
}

// Bounds of the processes of one entity. They keep a keepalive below 64 KiB, from where it would have to wait for room
// in the log, and the facts of a host well below what a backend stores.
const (
	MaxProcesses    = 1000
	MaxProcessBytes = 48 << 10 // of protobuf
	MaxProcessText  = 128      // bytes of a name or a status
)

// BoundProcesses returns a copy of the first of the processes, as many as the bounds allow, with texts that are cut.
func BoundProcesses(all []Process) []Process {
	if len(all) == 0 {
		return nil
	}
	out := make([]Process, 0, min(len(all), MaxProcesses))
	var room [2 * MaxProcessText]byte
	size := 0
	for _, p := range all[:cap(out)] {
		p.Name, p.Status = cutText(p.Name), cutText(p.Status)
		size += len(p.AppendProto(room[:0])) + processOverhead
		if size > MaxProcessBytes {
			break
		}
		out = append(out, p)
	}
	return out
}

// processOverhead is the most that a list adds to the encoding of each process, in bytes.
const processOverhead = 3

func cutText(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), MaxProcessText)], "")
}

type processJSON Process

// MarshalJSON writes 0 for numbers that JSON does not have; protobuf may bring such.
func (p Process) MarshalJSON() ([]byte, error) {
	for _, n := range []*float64{&p.MemoryPercent, &p.CPUPercent} {
		if math.IsNaN(*n) || math.IsInf(*n, 0) {
			*n = 0
		}
	}
	return json.Marshal(processJSON(p))
}

// UnmarshalJSON takes the status as a text or as a list of texts: libraries differ.
func (p *Process) UnmarshalJSON(b []byte) error {
	in := struct {
		*processJSON
		Status any `json:"status"`
	}{processJSON: (*processJSON)(p)}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	switch v := in.Status.(type) {
	case nil:
	case string:
		p.Status = v
	case []any:
		var texts []string
		for _, one := range v {
			texts = append(texts, fmt.Sprint(one))
		}
		p.Status = strings.Join(texts, ",")
	default:
		return fmt.Errorf("status of process %q is neither a text nor a list of texts", Short(p.Name))
	}
	return nil
}
