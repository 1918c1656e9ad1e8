//go:build unix && !linux

package proc

import (
	"os"
	"os/exec"
	"runtime"
)

// rssUnit is what the system counts memory in.
var rssUnit = map[bool]int64{true: 1, false: 1024}[runtime.GOOS == "darwin"]

// tree is a command's process group. What has left it is not found here.
type tree struct{ cmd *exec.Cmd }

func newTree(cmd *exec.Cmd, opts *Options) (*tree, error) {
	if opts.Cgroups != nil {
		return &tree{cmd}, errNoCgroups
	}
	return &tree{cmd}, nil
}

func (t *tree) started() error { return nil }

func (t *tree) kill() error { return killGroup(t.cmd) }

func (t *tree) usage(state *os.ProcessState) Usage { return waited(state) }

func (t *tree) close() {}
