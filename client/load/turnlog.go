package load

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// turnLog writes a line for each answer to a turn, at the moment at which Fleet.onAnswered counts it. From the logs of
// all processes of a run a program can find turns that no agent has answered, or several have. A line has these
// columns, with tabs between them: the tick in Unix seconds, the check, the subscription, the proxy entity (empty for
// none), the agent, and the time of the answer in Unix milliseconds.
type turnLog struct {
	mu   sync.Mutex // guards the fields below
	file *os.File
	out  *bufio.Writer
	line []byte
}

func openTurnLog(path string) (*turnLog, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("open turn log: %w", err)
	}
	return &turnLog{file: file, out: bufio.NewWriterSize(file, 1<<20)}, nil
}

// write adds a line. An error of the file is reported by close.
func (l *turnLog) write(agent string, r *result, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := strconv.AppendInt(l.line[:0], r.turn.tick, 10)
	for _, column := range []string{r.check.name, r.turn.subscription(), r.check.result.ProxyEntityName, agent} {
		b = append(append(b, '\t'), column...)
	}
	b = strconv.AppendInt(append(b, '\t'), at.UnixMilli(), 10)
	l.line = append(b, '\n')
	_, _ = l.out.Write(l.line) // out keeps the error for Flush
}

func (l *turnLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.out.Flush(), l.file.Close()); err != nil {
		return fmt.Errorf("write turn log: %w", err)
	}
	return nil
}
