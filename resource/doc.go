// Package resource holds the nouns of lapwing: Event, Check, Entity, Handler and what they are made of.
//
// One set of Go structs serves the JSON of the HTTP API, the JSON handed to handlers and the protobuf of the
// agent protocol. JSON names and shapes are Sensu Go 6's; the pb tags carry Sensu's protobuf field numbers, from
// which internal/pbgen writes the encoders and decoders in pb.gen.go. The package imports nothing else of lapwing.
package resource

//go:generate go run ../internal/pbgen -out pb.gen.go
