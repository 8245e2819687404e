package supervise

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/wrapper"
)

// pipes makes the standard input, output and error of a program: its ends and ours.
func pipes(order wrapper.Order) (theirs, ours []*os.File, err error) {
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(theirs)
			closeAll(ours)
			return nil, nil, err
		}
		if i > 0 {
			enlarge(w)
			r, w = w, r
		}
		theirs, ours = append(theirs, r), append(ours, w)
		if order.AsUser {
			// Else the program could not open /dev/stdout. Systems that cannot do this have no such files.
			_ = r.Chown(int(order.UID), int(order.GID))
		}
	}
	return theirs, ours, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// endReading makes readers of a pipe take what is in it, and then see its end, though someone may still hold the other end.
func endReading(f *os.File) { _ = f.SetReadDeadline(time.Unix(1, 0)) }

// output reads what a program writes. It closes the pipe at the end.
type output struct {
	file *os.File
	mu   sync.Mutex // of readers
	end  error
}

func (o *output) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.end != nil {
		return 0, o.end
	}
	n, err := o.file.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		n, err = readWithoutWaiting(o.file, p)
	}
	if err != nil {
		o.end = err
		_ = o.file.Close()
	}
	return n, err
}

// Close ends the reading. The program gets an error when it writes more.
func (o *output) Close() error { return o.file.Close() }

// tailSize is how much of the standard error is kept.
const tailSize = 8 << 10

// tail keeps the end of what is read from a pipe, and reads to its end.
type tail struct {
	read chan struct{} // closed at the end
	mu   sync.Mutex
	kept []byte
}

func newTail(f *os.File) *tail {
	t := &tail{read: make(chan struct{})}
	go func() {
		defer close(t.read)
		_, _ = io.CopyBuffer(t, struct{ io.Reader }{&output{file: f}}, make([]byte, tailSize))
	}()
	return t
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.kept)+len(p) > 2*tailSize {
		t.kept = append(t.kept[:0], t.kept[max(0, len(t.kept)-tailSize):]...)
	}
	t.kept = append(t.kept, p...)
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.kept[max(0, len(t.kept)-tailSize):]), "\uFFFD")
}
