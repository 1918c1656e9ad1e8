package resource

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func TestBoundProcesses(t *testing.T) {
	t.Parallel()
	many := func(n int, name string) []Process {
		return slices.Repeat([]Process{{Name: name, PID: 1 << 22, PPID: 1 << 22, Status: "Ssl+", Background: true, Running: true,
			Created: 1 << 31, MemoryPercent: 0.1, CPUPercent: 0.1}}, n)
	}
	for name, tc := range map[string]struct {
		all         []Process
		least, most int
	}{
		"none":       {nil, 0, 0},
		"few":        {many(3, "sshd"), 3, 3},
		"many":       {many(30_000, ""), 700, MaxProcesses},
		"small":      {make([]Process, 30_000), MaxProcesses, MaxProcesses},
		"long names": {many(1000, strings.Repeat("x", 1<<20)), 200, 400},
	} {
		got := BoundProcesses(tc.all)
		if len(got) < tc.least || len(got) > tc.most {
			t.Errorf("%s: %d are left", name, len(got))
		}
		if b := (&System{Processes: got}).AppendProto(nil); len(b) > MaxProcessBytes+10 {
			t.Errorf("%s: %d bytes are left", name, len(b))
		}
	}
	all := []Process{{Name: strings.Repeat("ü", MaxProcessText), Status: strings.Repeat("S", 1000)}, {Name: "a\xffb", PID: 7}}
	got := BoundProcesses(all)
	want := []Process{{Name: strings.Repeat("ü", MaxProcessText/2), Status: strings.Repeat("S", MaxProcessText)}, {Name: "ab", PID: 7}}
	if !slices.Equal(got, want) || len(all[0].Status) != 1000 {
		t.Errorf("texts are %+v", got)
	}
}

func TestProcessJSON(t *testing.T) {
	t.Parallel()
	const all = `{"name":"Slack","pid":1349,"ppid":1,"status":"Ss","background":true,"running":true,"created":1582137786,` +
		`"memory_percent":0.25,"cpu_percent":1.5}`
	whole := Process{Name: "Slack", PID: 1349, PPID: 1, Status: "Ss", Background: true, Running: true, Created: 1582137786,
		MemoryPercent: 0.25, CPUPercent: 1.5}
	for in, want := range map[string]Process{
		all: whole,
		strings.Replace(all, `"Ss"`, `["Ss"]`, 1): whole,
		`{"name":"a","status":["S","s"]}`:         {Name: "a", Status: "S,s"},
		`{"name":"a","status":null,"other":{}}`:   {Name: "a"},
		`{}`:                                      {},
	} {
		var got Process
		if err := json.Unmarshal([]byte(in), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{`{"status":1}`, `{"pid":"x"}`, `[]`} {
		if err := json.Unmarshal([]byte(in), new(Process)); err == nil {
			t.Errorf("%s is taken", in)
		}
	}
	if out, err := json.Marshal(&whole); string(out) != all || err != nil {
		t.Errorf("written as %s, %v", out, err)
	}
	// Protobuf from outside may have numbers that would spoil the JSON of a whole list.
	e := &Entity{System: System{Processes: []Process{{MemoryPercent: math.NaN(), CPUPercent: math.Inf(1)}}}}
	if out, err := json.Marshal(e); err != nil || !strings.Contains(string(out), `"memory_percent":0,"cpu_percent":0`) {
		t.Errorf("not a number: %s, %v", out, err)
	}
}

// TestProcessOfSensu: the name arrives, whatever else another program may send beside it.
func TestProcessOfSensu(t *testing.T) {
	t.Parallel()
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "sshd")
	for num := protowire.Number(2); num < 20; num++ {
		b = protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), 7)
		b = protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), 7)
		b = protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), "x")
	}
	var p Process
	if err := p.UnmarshalProto(b); err != nil || p != (Process{Name: "sshd"}) {
		t.Errorf("%+v, %v", p, err)
	}
}
