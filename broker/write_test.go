package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestWriting: what a write comes to, by the answers to its attempts.
func TestWriting(t *testing.T) {
	const own = "own"
	outrun := &jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}
	contended := &jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequenceConstant}
	notLeader := &jetstream.APIError{ErrorCode: codeNotLeader}
	full := &jetstream.APIError{ErrorCode: 10077}
	lost := errors.New("lost") // no answer until the attempt is over
	for name, c := range map[string]struct {
		answers []error // the last one again and again
		newest  []string
		seq     uint64
		is, not []error
		refused bool // Conflict
	}{
		"at once":                              {answers: []error{nil}, seq: 7},
		"refused":                              {answers: []error{outrun}, is: []error{outrun}, not: []error{ErrUncertain}, refused: true},
		"while another one is under way":       {answers: []error{contended}, not: []error{ErrUncertain}, refused: true},
		"no leader for a while":                {answers: []error{notLeader, nats.ErrNoResponders, nil}, seq: 7},
		"no leader, then refused":              {answers: []error{notLeader, outrun}, not: []error{ErrUncertain}, refused: true},
		"no leader at all":                     {answers: []error{notLeader}, is: []error{context.DeadlineExceeded}, not: []error{ErrUncertain}},
		"no answer, then taken":                {answers: []error{lost, nil}, seq: 7},
		"no answer at all":                     {answers: []error{lost}, is: []error{ErrUncertain, context.DeadlineExceeded}},
		"no answer, and its own is the newest": {answers: []error{lost, outrun}, newest: []string{own}, seq: 9},
		"no answer, and another is the newest": {answers: []error{lost, outrun}, newest: []string{"other"}, is: []error{ErrUncertain}, refused: true},
		"no answer, and the newest is unknown at first": {
			answers: []error{lost, outrun}, newest: []string{"", own}, seq: 9,
		},
		"no answer, and it is under way itself": {answers: []error{lost, contended, contended, outrun}, newest: []string{own}, seq: 9},
		"no answer, then no room":               {answers: []error{lost, full}, is: []error{ErrUncertain, full}},
		"no answer, then no leader":             {answers: []error{lost, notLeader}, is: []error{ErrUncertain}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers, newest := c.answers, c.newest
				w := writing{
					id: own,
					publish: func(ctx context.Context) (uint64, error) {
						err := answers[0]
						if len(answers) > 1 {
							answers = answers[1:]
						}
						if errors.Is(err, lost) {
							<-ctx.Done()
							err = ctx.Err()
						}
						return 7, err
					},
					newest: func(context.Context) (uint64, string, error) {
						id := newest[0]
						if newest = newest[1:]; id == "" {
							return 0, "", errors.New("no answer")
						}
						return 9, id, nil
					},
				}
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				seq, err := w.run(ctx, nil)
				if fails := c.is != nil || c.refused; (err != nil) != fails || !fails && seq != c.seq || Conflict(err) != c.refused {
					t.Errorf("it came to %d, %v", seq, err)
				}
				for _, want := range c.is {
					if !errors.Is(err, want) {
						t.Errorf("%v is not %v", err, want)
					}
				}
				for _, not := range c.not {
					if errors.Is(err, not) {
						t.Errorf("%v is %v", err, not)
					}
				}
			})
		})
	}
}
