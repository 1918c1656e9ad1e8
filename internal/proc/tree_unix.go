//go:build unix && !linux

package proc

import (
	"os"
	"os/exec"
	"runtime"
)

// rssUnit is the system's unit for memory.
var rssUnit = map[bool]int64{true: 1, false: 1024}[runtime.GOOS == "darwin"]

// tree is a command's process group. It does not include processes that have left the group.
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
