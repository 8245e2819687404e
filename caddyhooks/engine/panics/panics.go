// Package panics makes panics of others errors, and log lines. It is a part of package engine, and imports no other package of the project.
package panics

import (
	"errors"
	"fmt"
	"runtime/debug"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Error is a panic that was made an error. Its text is for the log, and has no stack: see Field.
type Error struct {
	Who   string // as in "the runner"
	Value any    // that the panic had
	Stack []byte
}

// New is for the function that has recovered the panic.
func New(who string, value any) *Error { return &Error{Who: who, Value: value, Stack: debug.Stack()} }

func (e *Error) Error() string { return fmt.Sprintf("%s panicked: %v", e.Who, e.Value) }

// Field is an error in a log line, as zap.Error is. The stack of a panic is a field of its own.
func Field(err error) zap.Field {
	var panicked *Error
	if !errors.As(err, &panicked) {
		return zap.Error(err)
	}
	return zap.Inline(zapcore.ObjectMarshalerFunc(func(line zapcore.ObjectEncoder) error {
		line.AddString("error", err.Error())
		line.AddByteString("stack", panicked.Stack)
		return nil
	}))
}
