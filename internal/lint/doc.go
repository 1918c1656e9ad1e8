// Package lint holds lapwing's own rules as tests: who may import whom, that every package says what it is for, that
// the documents name what exists. `make lint` runs it beside the usual tools; so does `go test ./...`.
package lint
