package stream

import "context"

// Network passes on what is said in turns, from the nodes that carry them out to nodes on which somebody follows their runs.
// Nothing of it is kept, and as long as nobody follows a run of another node nothing is sent.
type Network interface {
	// Follow lets the other nodes know that a run is followed here, until the feed is closed: those that carry it out now, and
	// those that do so later.
	Follow(id string) Feed

	// Asked receives word when there may be something new about the runs that other nodes follow.
	Asked() <-chan struct{}

	// Wanted are the ids of the runs that other nodes follow. The number of each is another one whenever a node began to follow
	// the run, or asked for it again: it wants all that was said in the present turn.
	Wanted() map[string]uint64

	// Send sends a frame to the other nodes that follow a run. Frames that one goroutine sends arrive in their order. It waits
	// for nodes that are slow as long as ctx allows. A frame may be lost, with an error or without; who misses it asks again.
	Send(ctx context.Context, id string, frame Frame) error
}

// Feed receives what other nodes send of a run.
type Feed interface {
	Frames() <-chan Frame

	// Ask asks for all that was said in the present turn.
	Ask()

	// Close may be called more than once.
	Close()
}

// Frame is a part of what was said in a turn.
type Frame struct {
	Turn int64  // where the turn began; later turns of a run have greater numbers
	At   int    // where the text stands in that of the turn …
	Said int    // … of which there were so many bytes when the frame was made
	Text string // at most MaxFrameText bytes, not always of whole characters
	Over bool   // nothing more is said in the turn
}

// MaxFrameText is how many bytes of text a frame has at most.
const MaxFrameText = 4 << 10
