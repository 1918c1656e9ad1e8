package promapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/golang/snappy"
)

// Writer takes the samples of one remote write request. The request calls Flush at its end, also if it fails.
type Writer interface {
	// Add takes a sample of the series with the stored name (see package promname). It does not keep name. An error
	// that is ErrFull or ErrRefused is handled as those say; with any other, the sender tries the request again.
	Add(name []byte, unixMilli int64, value float64) error
	Flush() error
}

var (
	// ErrForbidden is for a request that may not write. The sender drops its samples.
	ErrForbidden = errors.New("this needs the right to create metrics")
	// ErrFull is for a Writer that cannot take more at the moment. The sender tries the request again later.
	ErrFull = errors.New("the store takes no more samples at the moment")
	// ErrRefused is for a Writer that never takes this sample. The rest of the request goes on, and the sender learns
	// how many samples were refused.
	ErrRefused = errors.New("the store refuses the sample")
)

// maxKept bounds the buffers that are kept between requests, in bytes.
const maxKept = 4 << 20

// writeSlot has the buffers of one remote write request at a time.
type writeSlot struct {
	packed, plain []byte
	decoder       decoder
}

const (
	message1 = "prometheus.WriteRequest"
	message2 = "io.prometheus.write.v2.Request"
)

// message returns the kind of message in a request, or an error if the server does not know it.
func message(r *http.Request) (string, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "snappy") {
		return "", fmt.Errorf("the content encoding %q is not known: use snappy", e)
	}
	kind := r.Header.Get("Content-Type")
	if kind == "" {
		return message1, nil
	}
	media, params, err := mime.ParseMediaType(kind)
	if err != nil || media != "application/x-protobuf" {
		return "", fmt.Errorf("the content type %q is not known: use application/x-protobuf", kind)
	}
	switch m := params["proto"]; m {
	case "", message1:
		return message1, nil
	case message2:
		return message2, nil
	default:
		return "", fmt.Errorf("the message %q is not known: use %s or %s", m, message1, message2)
	}
}

// write serves a remote write request.
func (a *API) write(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	kind, err := message(r)
	if err != nil {
		a.writeFailed(w, http.StatusUnsupportedMediaType, err)
		return
	}
	s, err := wait(r.Context(), a.writes, a.writeWaiting, a.o.MaxWait)
	if err != nil {
		a.writeFailed(w, http.StatusServiceUnavailable, err)
		return
	}
	defer func() {
		if cap(s.packed)+cap(s.plain) > maxKept {
			s.packed, s.plain = nil, nil
		}
		s.decoder.reset(nil)
		a.writes <- s
	}()
	if err := a.body(w, r, s); err != nil {
		status := http.StatusBadRequest
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) || errors.Is(err, errDecodedSize) {
			status = http.StatusRequestEntityTooLarge
		}
		a.writeFailed(w, status, err)
		return
	}
	a.metrics.received.Add(float64(len(s.packed)))
	writer, err := a.o.Writer(r)
	if err != nil {
		status := http.StatusInternalServerError
		switch {
		case errors.Is(err, ErrFull):
			status = http.StatusServiceUnavailable
		case errors.Is(err, ErrForbidden):
			status = http.StatusForbidden
		}
		a.writeFailed(w, status, err)
		return
	}
	d := &s.decoder
	d.reset(writer)
	if kind == message2 {
		err = d.v2(s.plain)
	} else {
		err = d.v1(s.plain)
	}
	if flushErr := writer.Flush(); err == nil {
		err = flushErr
	}
	a.count(d)
	if kind == message2 {
		// Samples that say "no value" are dealt with, so they count as written.
		w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", strconv.Itoa(d.samples+d.stale+d.nan))
		w.Header().Set("X-Prometheus-Remote-Write-Histograms-Written", "0")
		w.Header().Set("X-Prometheus-Remote-Write-Exemplars-Written", "0")
	}
	var bad *malformedError
	switch {
	case errors.As(err, &bad):
		a.writeFailed(w, http.StatusBadRequest, err)
	case errors.Is(err, ErrFull):
		a.writeFailed(w, http.StatusServiceUnavailable, err)
	case err != nil:
		a.writeFailed(w, http.StatusInternalServerError, err)
	case d.invalid+d.refused+d.histograms > 0:
		a.writeFailed(w, http.StatusBadRequest, d.partial())
	default:
		a.metrics.writes.WithLabelValues("ok").Inc()
		w.WriteHeader(http.StatusNoContent)
	}
}

// partial tells the sender what was left out of a request whose other samples were taken.
func (d *decoder) partial() error {
	texts := []string{fmt.Sprintf("took %d samples", d.samples)}
	if n := d.invalid; n > 0 {
		texts = append(texts, fmt.Sprintf("%d samples belong to series that cannot be stored", n))
	}
	if n := d.refused; n > 0 {
		texts = append(texts, fmt.Sprintf("%d samples were refused", n))
	}
	if d.firstBad != nil {
		texts = append(texts, "the first because: "+d.firstBad.Error())
	}
	if n := d.histograms; n > 0 {
		texts = append(texts, fmt.Sprintf("%d native histograms cannot be stored", n))
	}
	return errors.New(strings.Join(texts, "; "))
}

func (a *API) count(d *decoder) {
	a.metrics.samples.Add(float64(d.samples))
	for reason, n := range map[string]int{"stale": d.stale, "nan": d.nan, "invalid": d.invalid, "refused": d.refused,
		"histogram": d.histograms} {
		if n > 0 {
			a.metrics.dropped.WithLabelValues(reason).Add(float64(n))
		}
	}
}

func (a *API) writeFailed(w http.ResponseWriter, status int, err error) {
	result := "invalid"
	switch {
	case status == http.StatusServiceUnavailable:
		result = "busy"
		a.setRetryAfter(w)
	case status >= 500:
		result = "failed"
	}
	a.metrics.writes.WithLabelValues(result).Inc()
	a.log.Warn("remote write request was not taken as a whole", result, "status", status, "err", err)
	http.Error(w, err.Error(), status)
}

var errDecodedSize = errors.New("the body is too large after decompression")

// body reads and decompresses the body of a request into s.
func (a *API) body(w http.ResponseWriter, r *http.Request, s *writeSlot) error {
	// A sender that stalls may hold the slot only so long. Some ResponseWriters of tests have no deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.o.Timeout))
	reader := http.MaxBytesReader(w, r.Body, a.o.MaxWriteBytes)
	s.packed = s.packed[:0]
	if n := r.ContentLength; n > a.o.MaxWriteBytes {
		return fmt.Errorf("read the body: %w", &http.MaxBytesError{Limit: a.o.MaxWriteBytes})
	}
	for {
		if cap(s.packed)-len(s.packed) < 512 {
			// It grows with what was read, so a false Content-Length takes no memory.
			s.packed = append(s.packed, make([]byte, max(32<<10, len(s.packed)))...)[:len(s.packed)]
		}
		n, err := reader.Read(s.packed[len(s.packed):cap(s.packed)])
		s.packed = s.packed[:len(s.packed)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the body: %w", err)
		}
	}
	size, err := snappy.DecodedLen(s.packed)
	if err != nil {
		return fmt.Errorf("decompress the body: %w", err)
	}
	if int64(size) > a.o.MaxWriteBytes {
		return fmt.Errorf("%w: it has %d bytes, the server takes %d", errDecodedSize, size, a.o.MaxWriteBytes)
	}
	plain, err := snappy.Decode(s.plain[:cap(s.plain)], s.packed)
	if err != nil {
		return fmt.Errorf("decompress the body: %w", err)
	}
	s.plain = plain
	return nil
}
