// Package lint checks lapwing's own rules as tests: the table of imports, package comments, words, and that documents
// name things that exist. `make lint` and `go test ./...` run it.
package lint
