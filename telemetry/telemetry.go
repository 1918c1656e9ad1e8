// Package telemetry makes what a process uses to tell about itself: its logger, its metrics registry and its
// profiles. The process builds each once and injects it; no part of lapwing logs or counts through a global.
package telemetry
