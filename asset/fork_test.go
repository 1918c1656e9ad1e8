//go:build unix

package asset

import (
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// TestRunAtOnce unpacks programs and runs them at once while other processes start all the time. None may fail with
// "text file busy".
func TestRunAtOnce(t *testing.T) {
	data := archive(t, false, plugin...)
	o := newOrigin(t)
	o.serve("/plugin", data)
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 32 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("/bin/true").Run()
				}
			}
		})
	}
	defer others.Wait()
	defer close(stop)
	for range 4 {
		var wait sync.WaitGroup
		for range 32 {
			s := newStore(t, Options{})
			wait.Go(func() {
				installed, err := s.Get(t.Context(), one(o.URL+"/plugin", sum(data)))
				if err != nil {
					t.Error(err)
					return
				}
				if out, err := exec.Command(filepath.Join(installed[0].Dir, "bin", "check-it")).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		wait.Wait()
	}
}
