// Package resource defines lapwing's nouns: Event, Check, Entity, Handler and their parts. All other packages use it.
//
// One set of Go structs serves the JSON of the HTTP API, the JSON for handlers and the protobuf of the agent protocol.
// JSON names and shapes are Sensu Go 6's. The pb tags carry Sensu's protobuf field numbers; internal/pbgen makes the
// encoders and decoders in pb.gen.go from them. Kinds lists every kind of resource once. Validate methods return
// Sensu's error texts.
//
// The package stores nothing and has no rights or selectors: see config, auth and selector. It imports no other lapwing
// package.
package resource

//go:generate go run ../internal/pbgen -out pb.gen.go
