package terminal

import (
	"fmt"
	"io"
)

// Output is where the answer of a command goes. It keeps the first failure, so that an answer that a full disk cut short does not
// pass for a whole one.
type Output struct {
	out    io.Writer
	failed error
}

// NewOutput makes an output of a file or another writer.
func NewOutput(out io.Writer) *Output { return &Output{out: out} }

func (o *Output) Write(p []byte) (int, error) {
	n, err := o.out.Write(p)
	if err != nil && o.failed == nil {
		o.failed = fmt.Errorf("the answer could not be printed: %w", err)
	}
	return n, err
}

// Fd is the descriptor of the file, or none.
func (o *Output) Fd() uintptr {
	if file, ok := o.out.(descriptor); ok {
		return file.Fd()
	}
	return ^uintptr(0)
}

// Failure says why not all was written.
func (o *Output) Failure() error { return o.failed }
