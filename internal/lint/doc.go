// Package lint checks lapwing's own rules as tests. `make lint` and `go test ./...` run it.
//
// layers_test.go has the table of imports: which package may import which, and why. docs_test.go compares
// docs/ARCHITECTURE.md and docs/metrics.md with the code, grafana_test.go and alerts_test.go the dashboard and the alerts
// with the metrics. source_test.go checks package comments, words, formatting and that tests do not sleep; module_test.go
// reads the sources for all.
package lint
