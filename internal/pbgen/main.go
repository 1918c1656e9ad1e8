// Command pbgen writes protobuf encoders and decoders for Go structs.
//
// It reads the structs of one package directory whose fields carry tags like `pb:"3"` (the field's number) or
// `pb:"3,always"` (a sub-message that is written even when empty) and writes, for each of them, AppendProto and
// UnmarshalProto. The structs stay the single description of a message: there is no .proto file to keep in step and
// no reflection at run time. Only what Sensu's messages use is known: see kindOf.
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
