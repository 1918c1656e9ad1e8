package ctl_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// plugin FILE writes an archive FILE.tar.gz whose bin/entrypoint is the script FILE, and sets $SUM to its checksum. In
// the directory index, it writes what the public index of assets answers for it.
func plugin(ts *testscript.TestScript, _ bool, args []string) {
	script := []byte(ts.ReadFile(args[0]))
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	files := tar.NewWriter(zipped)
	ts.Check(files.WriteHeader(&tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}))
	ts.Check(files.WriteHeader(&tar.Header{Name: "bin/entrypoint", Mode: 0o755, Size: int64(len(script))}))
	_, err := files.Write(script)
	ts.Check(err)
	ts.Check(files.Close())
	ts.Check(zipped.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".tar.gz"), archive.Bytes(), 0o600))
	sum := fmt.Sprintf("%x", sha512.Sum512(archive.Bytes()))
	ts.Setenv("SUM", sum)

	// The index is a directory of the script's file server.
	for name, kind := range map[string]string{"plugin": "sensuctl/command", "check": "agent/check"} {
		dir := ts.MkAbs("index/api/v1/assets/sensu/" + name + "/1.2.0")
		ts.Check(os.MkdirAll(dir, 0o755))
		found := strings.NewReplacer("TYPE", strings.Split(kind, "/")[0], "PROVIDER", kind, "NAME", name, "SUM", sum,
			"URL", ts.Getenv("FILES")+"/"+args[0]+".tar.gz", "OS", runtime.GOOS, "OTHER", strings.Repeat("0", 128)).Replace(indexedAsset)
		ts.Check(os.WriteFile(filepath.Join(dir, "release_asset_builds"), []byte(found), 0o600))
	}
}

const indexedAsset = `{"type": "Asset", "api_version": "core/v2", "metadata": {"name": "sensu/NAME", "annotations": {
  "io.sensu.bonsai.type": "TYPE", "io.sensu.bonsai.provider": "PROVIDER", "io.sensu.bonsai.version": "1.2.0"}},
  "spec": {"builds": [
    {"url": "http://127.0.0.1:1/other.tar.gz", "sha512": "OTHER", "filters": ["entity.system.os == 'beos'"]},
    {"url": "URL", "sha512": "SUM", "filters": ["entity.system.os == 'OS'", "entity.system.arch != ''"]}]}}`
