// Command apigen writes the Go types of the API client from the OpenAPI document.
//
// It writes the components that the requests and the successful answers of some paths refer to, sorted by name. The
// comments come from the descriptions. Types of package resource are not written again: the fields refer to that
// package. A field that may be absent has omitempty, and a value that may be null is a pointer. apigen knows the schemas
// that package api makes of Go types, and reports an error for others.
//
// go generate calls it in package client. A test compares the written file with the document.
package main

import (
	"flag"
	"fmt"
	"os"
)

// paths are the beginnings of the paths whose types the client has: lapwing's own paths, and paths of Sensu that are
// about no resource.
var paths = []string{
	"/api/lapwing/v1/", "/api/enterprise/", "/api/core/v2/cluster/", "/auth", "/health", "/version",
}

func main() {
	o := options{paths: paths}
	flag.StringVar(&o.document, "document", "../api/openapi/openapi.json", "OpenAPI `file` to read")
	flag.StringVar(&o.resources, "resources", "../resource", "`directory` of package resource")
	flag.StringVar(&o.pkg, "package", "client", "`name` of the package to write")
	out := flag.String("out", "types.gen.go", "`file` to write")
	flag.Parse()
	text, err := generate(o)
	if err == nil {
		err = os.WriteFile(*out, text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apigen:", err)
		os.Exit(1)
	}
}
