package pickle

import (
	"encoding/base64"
	"math"
	"strings"
	"testing"
)

// CPython 3.11 reads the wanted bytes as [None, True, False, 0, 255, 256, 65535, 65536, -1, 2147483648,
// -9223372036854775808, 1.5, inf, 'é', [1.0, None], [], [], (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {},
// {'b': 1, 'a': {'x': None}}, 'bad\ufffd'].
const everyKind = "gAJdKE6IiUsAS/9NAAFN//9KAAABAEr/////iggAAACAAAAAAIoIAAAAAAAAAIBHP/gAAAAAAABHf/AAAAAAAABYAgAAAMOpXShHP/AA" +
	"AAAAAABOZV1dKUsBhUsBSwKGSwFLAksDhyhLAUsCSwNLBHR9fShYAQAAAGJLAVgBAAAAYX0oWAEAAAB4TnV1WAYAAABiYWTvv71lLg=="

func TestAppend(t *testing.T) {
	got, err := Append(nil, []any{nil, true, false, 0, 255, 256, 65535, 65536, -1, int64(math.MaxInt32) + 1,
		int64(math.MinInt64), 1.5, math.Inf(1), "é", []float64{1, math.NaN()}, []float64{}, []any{}, Tuple{}, Tuple{1},
		Tuple{1, 2}, Tuple{1, 2, 3}, Tuple{1, 2, 3, 4}, Dict{}, Dict{{"b", 1}, {"a", Dict{{"x", nil}}}}, "bad\xff"})
	if err != nil {
		t.Fatal(err)
	}
	if b := base64.StdEncoding.EncodeToString(got); b != everyKind {
		t.Errorf("got %s", b)
	}
}

func TestAppendAfterOtherBytes(t *testing.T) {
	got, err := Append([]byte("abc"), true)
	if err != nil || string(got) != "abc\x80\x02\x88." {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestWrongValues(t *testing.T) {
	loop := make([]any, 1)
	loop[0] = loop
	for _, v := range []any{int32(1), []string{"a"}, []any{uint(1)}, Tuple{struct{}{}}, Dict{{"a", []byte{1}}}, loop} {
		if b, err := Append(nil, v); err == nil || b != nil || !strings.HasPrefix(err.Error(), "pickle: ") {
			t.Errorf("%T: got %q, %v", v, b, err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	values := make([]float64, 1000)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = Append(buf[:0], []any{Dict{{"name", "servers.h1.cpu.user"}, {"values", values}}})
	}
	b.SetBytes(int64(len(buf)))
}
