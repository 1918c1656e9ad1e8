// Package openapi has the OpenAPI document of the HTTP API, which the API serves and clients may be made from.
//
// A test of package api makes the document from the routes, the Go types of requests and answers, and the comments of
// those types. Tests hold it to the server: it has every method of every path, and the answers of the real handlers fit
// its schemas. The types of package client and of the web page are generated from it. make generate writes all three.
package openapi

import _ "embed"

//go:generate go test .. -count 1 -run ^TestOpenAPI$ -update

// Document is the OpenAPI 3.1 document, in JSON.
//
//go:embed openapi.json
var Document []byte
