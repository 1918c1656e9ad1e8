package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

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
		"at once": {answers: []error{nil}, seq: 7},
		"refused": {answers: []error{outrun}, newest: []string{"other"}, is: []error{outrun}, not: []error{ErrUncertain}, refused: true},
		"the expected message was removed": {
			answers: []error{outrun}, newest: []string{"none"}, is: []error{outrun}, not: []error{ErrUncertain}, refused: true,
		},
		"no leader for a while": {answers: []error{notLeader, nats.ErrNoResponders, nil}, seq: 7},
		"no leader, then refused": {
			answers: []error{notLeader, outrun}, newest: []string{"other"}, not: []error{ErrUncertain}, refused: true,
		},
		"no leader at all":                     {answers: []error{notLeader}, is: []error{context.DeadlineExceeded}, not: []error{ErrUncertain}},
		"no answer, then taken":                {answers: []error{lost, nil}, seq: 7},
		"no answer at all":                     {answers: []error{lost}, is: []error{ErrUncertain, context.DeadlineExceeded}},
		"no answer, and its own is the newest": {answers: []error{lost, outrun}, newest: []string{own}, seq: 9},
		"no answer, and another is the newest": {
			answers: []error{lost, outrun}, newest: []string{"other"}, is: []error{ErrUncertain}, refused: true,
		},
		"no answer, and another one has replaced what it expected": {
			answers: []error{lost, outrun}, newest: []string{"next"}, is: []error{outrun}, not: []error{ErrUncertain}, refused: true,
		},
		"the connection broke":          {answers: []error{nats.ErrDisconnected, nil}, seq: 7},
		"the leader could not store it": {answers: []error{full}, is: []error{ErrUncertain, full}},
		"no answer, and the newest is unknown at first": {
			answers: []error{lost, outrun}, newest: []string{"", own}, seq: 9,
		},
		"no answer, then no room":   {answers: []error{lost, full}, is: []error{ErrUncertain, full}},
		"no answer, then no leader": {answers: []error{lost, notLeader}, is: []error{ErrUncertain}},
		"an old leader's write is in its way, and the new leader has stored it": {
			answers: []error{contended, contended, outrun}, newest: []string{own}, seq: 9,
		},
		"an old leader's write is in its way, and the new leader has another one": {
			answers: []error{contended, outrun}, newest: []string{"next"}, not: []error{ErrUncertain}, refused: true,
		},
		"an old leader's write is in its way, and the new leader has several": {
			answers: []error{contended, outrun}, newest: []string{"other"}, is: []error{ErrUncertain}, refused: true,
		},
		"an old leader has not caught up, and the new one has several": {
			answers: []error{outrun, outrun}, newest: []string{"old", "other"}, is: []error{ErrUncertain}, refused: true,
		},
		"another write is under way for ever":              {answers: []error{contended}, is: []error{ErrUncertain}, refused: true},
		"an old leader has not caught up, the new one has": {answers: []error{outrun, nil}, newest: []string{"old"}, seq: 7},
		"an old leader has not caught up, and it is stored": {
			answers: []error{outrun, outrun}, newest: []string{"old", own}, seq: 9,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers, newest := c.answers, c.newest
				w := writing{
					id: own, expected: 5,
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
					newest: func(context.Context) (newestWrite, error) {
						id := newest[0]
						switch newest = newest[1:]; id {
						case "":
							return newestWrite{}, errors.New("no answer")
						case "old":
							return newestWrite{5, id, "3"}, nil
						case "next":
							return newestWrite{9, id, "5"}, nil
						case "none":
							return newestWrite{}, nil
						}
						return newestWrite{9, id, "7"}, nil
					},
				}
				ctx, cancel := context.WithTimeout(t.Context(), writeTimeout+writePause/2) // it ends in a pause
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
