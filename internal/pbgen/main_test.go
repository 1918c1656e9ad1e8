package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommittedFileIsCurrent(t *testing.T) {
	const dir = "../../resource"
	p, err := parse(dir)
	if err != nil {
		t.Fatal(err)
	}
	want, err := generate(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "pb.gen.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("resource/pb.gen.go is not what pbgen writes: run go generate ./resource")
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct {
		name, src, want string
	}{
		{"no tags", "type A struct{ B string }", "no pb tags"},
		{"bad number", "type A struct{ B string `pb:\"x\"` }", "bad tag"},
		{"bad option", "type A struct{ B string `pb:\"1,never\"` }", "bad tag"},
		{"same number", "type A struct{ B, C string `pb:\"1\"` }", "share a tag"},
		{"number twice", "type A struct{ B string `pb:\"1\"`; C string `pb:\"1\"` }", "two fields have number 1"},
		{"type", "type A struct{ B chan int `pb:\"1\"` }", "no protobuf form"},
		{"array", "type A struct{ B [2]string `pb:\"1\"` }", "no protobuf form"},
		{"list of numbers", "type A struct{ B []int64 `pb:\"1\"` }", "no protobuf form"},
		{"value without always", "type A struct{ B B `pb:\"1\"` }; type B struct{ C bool `pb:\"1\"` }", "always"},
		{"pointer with always", "type A struct{ B *B `pb:\"1,always\"` }; type B struct{ C bool `pb:\"1\"` }", "always"},
		{"unknown message", "type A struct{ B *B `pb:\"1\"` }; type B struct{}", "B has no pb tags"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package a\n\n"+tt.src+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := parse(dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("parse: %v, want an error with %q", err, tt.want)
			}
		})
	}
}
