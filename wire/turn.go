package wire

// Turn says what is to be done for the owner that Poller.Next returns.
type Turn uint8

const (
	// TurnRead means that something has arrived, or that the connection was held and its lane is open. The caller of
	// Next reads with TryRead until there is nothing more, or stops earlier, and calls Poller.Return. It must not
	// wait for anything: it holds up all other connections of the Poller.
	TurnRead Turn = iota
	// TurnResume means that the connection was closed while it was parked or held. A goroutine must read, and will
	// get the error.
	TurnResume
	// TurnEnd means that the Poller was closed. There is no owner.
	TurnEnd
)

// Then says how the reading of a connection goes on that had its turn.
type Then uint8

const (
	// ThenPark waits for something to arrive: all that has arrived was read.
	ThenPark Then = iota
	// ThenHold gives the connection another turn when its lane is open. Until then nothing is read: TCP holds the
	// peer up once the socket's buffer is full. If the peer goes meanwhile and the lane stays closed, the connection
	// is closed.
	ThenHold
	// ThenResume leaves the connection to a goroutine.
	ThenResume
)

// Lanes are ways on which the messages of a Poller's connections go. While a lane is closed, connections of it are
// held.
type Lanes struct {
	Count int
	// Open reports whether a lane takes messages. Next calls it, and it must not wait.
	Open func(lane int) bool
}
