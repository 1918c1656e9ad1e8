package client

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
)

func TestDo(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.EscapedPath() + " " + r.Header.Get("Authorization") + " " + string(body)
		if r.Method == http.MethodDelete {
			http.Error(w, `{"message":"not found","code":2}`, http.StatusNotFound)
			return
		}
		io.WriteString(w, `{"b":2}`)
	})
	const path = "/api/core/v2/namespaces/default/pipelines/a%2Fb"
	var out json.RawMessage
	must(t, c.Do(t.Context(), http.MethodPut, path, map[string]int{"a": 1}, &out))
	if want := "PUT " + path + ` Key k {"a":1}`; got != want || string(out) != `{"b":2}` {
		t.Errorf("sent %s, want %s; read %s", got, want, out)
	}
	err := c.Do(t.Context(), http.MethodDelete, path, nil, nil)
	if want := "DELETE " + path + ": not found"; !errors.Is(err, ErrNotFound) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
