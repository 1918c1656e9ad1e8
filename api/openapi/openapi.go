// Package openapi has the OpenAPI document of the HTTP API, which the API serves and clients may be made from.
//
// The document is made from the API's routes and the types of package resource, and api's tests hold it to both: every
// method of every path stands in it, and answers of the real handlers fit its schemas. After a change of either,
// go test ./api -run TestOpenAPI -update writes it anew.
package openapi

import _ "embed"

// Document is the OpenAPI 3.1 document, in JSON.
//
//go:embed openapi.json
var Document []byte
