// Package telemetry provides a process's logger, metrics registry and profiles. cmd/lapwing builds each once and passes
// it to the parts; no part of lapwing logs or counts through a global. Which lines and metrics there are is up to the
// parts.
package telemetry
