package state

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func hostState() *resource.EntityState {
	return &resource.EntityState{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "web1"}, LastSeen: 77, SensuAgentVersion: "6.12",
		System: resource.System{OS: "linux", Network: resource.Network{Interfaces: []resource.NetworkInterface{{Name: "lo"}}},
			Processes: []resource.Process{{Name: "init", PID: 1, CPUPercent: 0.5}, {Name: "sshd", PID: 7, PPID: 1}}},
	}
}

func TestFactsAreSplit(t *testing.T) {
	t.Parallel()
	decode := func(b []byte) *resource.EntityState {
		t.Helper()
		st := new(resource.EntityState)
		if err := st.UnmarshalProto(b); err != nil {
			t.Fatal(err)
		}
		return st
	}
	st := hostState()
	body := AppendFacts(nil, st)
	if got := decode(body); !reflect.DeepEqual(got, st) {
		t.Errorf("decoded as one: %+v", got)
	}
	facts, processes := SplitFacts(body)
	if got := ProcessesReported(processes); got != 77 {
		t.Errorf("reported at %d", got)
	}
	bare := hostState()
	bare.System.Processes, bare.LastSeen = nil, 0
	if got := decode(facts); !reflect.DeepEqual(got, bare) || !bytes.Equal(facts, bare.AppendProto(nil)) {
		t.Errorf("facts: %+v", got)
	}

	// Without processes, and as earlier releases wrote it, a body has one part.
	bare.LastSeen = 5
	for _, body := range [][]byte{nil, AppendFacts(nil, bare), st.AppendProto(nil)} {
		if facts, processes := SplitFacts(body); !bytes.Equal(facts, body) || len(processes) != 0 || ProcessesReported(processes) != 0 {
			t.Errorf("%x is split", body)
		}
	}
	if got := decode(AppendFacts(nil, bare)); !reflect.DeepEqual(got, bare) {
		t.Errorf("without processes: %+v", got)
	}
}

func FuzzSplitFacts(f *testing.F) {
	f.Add(AppendFacts(nil, hostState()))
	f.Add(hostState().AppendProto(nil))
	f.Add([]byte{0x0a, 0, 0x0a, 0xff})
	f.Fuzz(func(t *testing.T, body []byte) {
		facts, processes := SplitFacts(body)
		if string(facts)+string(processes) != string(body) {
			t.Error("bytes are lost")
		}
		_ = ProcessesReported(processes)
		var st resource.EntityState
		if st.UnmarshalProto(body) != nil {
			return
		}
		var again resource.EntityState
		if err := again.UnmarshalProto(AppendFacts(nil, &st)); err != nil || !bytes.Equal(again.AppendProto(nil), st.AppendProto(nil)) {
			t.Errorf("%+v became %+v, %v", st, again, err)
		}
	})
}
