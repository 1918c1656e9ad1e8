// Command pbgen writes protobuf encoders and decoders for Go structs. `go generate` runs it for package resource.
//
// It reads the structs of one package directory whose fields have tags like `pb:"3"` (the field's number) or
// `pb:"3,always"` (a sub-message that is written even when empty) and writes AppendProto and UnmarshalProto for each.
// The structs are the only description of a message: there is no .proto file to keep in step and no reflection at run
// time. It knows only the types that Sensu's messages use: see kindOf.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("dir", ".", "`directory` of the package to read")
	out := flag.String("out", "pb.gen.go", "`file` to write, relative to the directory")
	flag.Parse()
	if err := run(*dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "pbgen:", err)
		os.Exit(1)
	}
}

func run(dir, out string) error {
	pkg, err := parse(dir)
	if err != nil {
		return err
	}
	src, err := generate(pkg)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, out), src, 0o644); err != nil {
		return fmt.Errorf("write encoders: %w", err)
	}
	return nil
}
