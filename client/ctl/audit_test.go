package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// TestFollowAudit: each change is printed once and in order, also of more than one page between two looks, and changes
// that are made while the pages are read.
func TestFollowAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the three below
		newest, reads := uint64(150), 0
		var grow func() // is called after each page
		read := func(_ context.Context, q url.Values) (page []client.AuditEntry, next string, err error) {
			mu.Lock()
			defer mu.Unlock()
			reads++
			limit, _ := strconv.Atoi(q.Get("limit"))
			from := newest
			if before := q.Get("continue"); before != "" {
				n, _ := strconv.ParseUint(before, 10, 64)
				from = n - 1
			}
			for id := from; id > 0 && len(page) < limit; id-- {
				page = append(page, client.AuditEntry{ID: id, Action: "update"})
			}
			if n := len(page); n > 0 && page[n-1].ID > 1 {
				next = strconv.FormatUint(page[n-1].ID, 10)
			}
			if grow != nil {
				grow()
			}
			return page, next, nil
		}
		var out bytes.Buffer
		s := &invocation{settings: &settings{format: formatJSON}, out: &out}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- followAudit(ctx, s, read, url.Values{"limit": {"100"}}) }()

		synctest.Wait()
		mu.Lock()
		newest += 2*auditFollowPage + 500 // between two looks
		grown := false
		grow = func() {
			if !grown { // between two pages
				newest, grown = newest+7, true
			}
		}
		mu.Unlock()
		time.Sleep(auditEvery)
		synctest.Wait()
		time.Sleep(auditEvery)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := uint64(51) // the first look has the newest 100
		for dec := json.NewDecoder(&out); dec.More(); want++ {
			var e client.AuditEntry
			if err := dec.Decode(&e); err != nil {
				t.Fatal(err)
			}
			if e.ID != want {
				t.Fatalf("change %d comes where %d should", e.ID, want)
			}
		}
		if want != newest+1 {
			t.Errorf("the last change is %d, and %d was made", want-1, newest)
		}
		if reads > 6 {
			t.Errorf("%d requests: a look must stop at what is known", reads)
		}
	})
}
