package eventlog_test

import (
	"bytes"
	"testing"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// digestOf returns the digest of messages from one on.
func digestOf(from uint64, messages ...[]byte) (d eventlog.Digest) {
	for i, msg := range messages {
		_, err := eventlog.OpenBatch(msg, str)
		d.Add(from+uint64(i), eventlog.Checksum(msg, err == nil))
	}
	return d
}

// TestDigest: the digests of different messages differ, and a digest can be stored.
func TestDigest(t *testing.T) {
	a, b, c := batchV2("x", 1, records()...), batchV2("y", 1, records()...), batchV2("x", 2)
	want := digestOf(7, a, b, c)
	if want != digestOf(7, a, b, c) || want.From != 7 || want.Seq != 9 {
		t.Errorf("the digest of three messages is %+v", want)
	}
	damaged := bytes.Clone(b)
	damaged[5] ^= 4
	cut := b[:3]
	for what, other := range map[string]eventlog.Digest{
		"another message": digestOf(7, a, c, c), "another order": digestOf(7, b, a, c), "one less": digestOf(7, a, b),
		"another place": digestOf(8, a, b, c), "a damaged message": digestOf(7, a, damaged, c),
		"a cut message": digestOf(7, a, cut, c),
	} {
		if other.Sum == want.Sum {
			t.Errorf("%s has the same sum", what)
		}
	}
	if got, err := eventlog.DecodeDigest(want.Append(nil)); err != nil || got != want {
		t.Errorf("stored %+v, read %+v, %v", want, got, err)
	}
	for _, bad := range []string{"", "\x02\x01\x01\x01", "\x01\x01"} {
		if _, err := eventlog.DecodeDigest([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
