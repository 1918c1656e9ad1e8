package doctor_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/lapwing-monitoring/lapwing/client/doctor"
)

// answer is a transport whose answers have this body.
type answer struct{ body io.Reader }

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(a.body), Request: r}, nil
}

// endless repeats a line, and counts what was read of it.
type endless struct {
	line string
	read int
}

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = e.line[(e.read+i)%len(e.line)]
	}
	e.read += len(b)
	return len(b), nil
}

func TestFetchIsBounded(t *testing.T) {
	const most = 16 << 20
	body := &endless{line: "lapwing_build_info 1\n"}
	client := &http.Client{Transport: answer{body}}
	_, err := doctor.Fetch(t.Context(), client, "http://endless/metrics", "")
	const want = "read http://endless/metrics: the answer is longer than 16 MiB, and no more is read: " +
		"is this the address of a lapwing backend's metrics?"
	if err == nil || err.Error() != want {
		t.Errorf("an endless answer: error %v, want %s", err, want)
	}
	if body.read > most+64<<10 {
		t.Errorf("%d bytes of an endless answer were read", body.read)
	}

	// An answer of exactly the bound is parsed.
	head := "# TYPE lapwing_build_info gauge\nlapwing_build_info{version=\"1\"} 1\n" +
		"# TYPE lapwing_eventlog_position gauge\nlapwing_eventlog_position 1\n"
	filling := "#" + strings.Repeat(" ", most-len(head)-2) + "\n"
	client.Transport = answer{io.MultiReader(strings.NewReader(head), strings.NewReader(filling))}
	if _, err := doctor.Fetch(t.Context(), client, "http://large/metrics", ""); err != nil {
		t.Errorf("a large answer: %v", err)
	}
}

func TestFetchOfABrokenAnswer(t *testing.T) {
	body := io.MultiReader(strings.NewReader("up"), iotest.ErrReader(io.ErrUnexpectedEOF))
	_, err := doctor.Fetch(t.Context(), &http.Client{Transport: answer{body}}, "http://broken/metrics", "")
	const want = "read http://broken/metrics: the answer breaks off after 2 bytes: unexpected EOF"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
