package backend

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// dbLog hands the database's log lines to slog.
type dbLog struct{ log *slog.Logger }

var _ pebble.Logger = dbLog{}

func (l dbLog) Infof(f string, v ...any) {
	l.log.Debug("database notice", "text", fmt.Sprintf(f, v...))
}
func (l dbLog) Errorf(f string, v ...any) {
	l.log.Error("database error", "text", fmt.Sprintf(f, v...))
}

// Fatalf must not return: the database calls it when to go on would lose data.
func (l dbLog) Fatalf(f string, v ...any) {
	l.log.Error(fatalMessage(v), "text", fmt.Sprintf(f, v...))
	os.Exit(1)
}

func fatalMessage(about []any) string {
	for _, v := range about {
		if err, ok := v.(error); ok && errors.Is(err, syscall.ENOSPC) {
			return "the disk is full: the state database cannot write, and the process must end; " + nothingLost
		}
	}
	return "database failed, the process must end"
}
