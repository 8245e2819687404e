package engine

import (
	"errors"
	"fmt"
	"runtime/debug"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// PanicError is a panic that was made an error. Its text is for the log, and has no stack: see ErrorField.
type PanicError struct {
	Who   string // as in "the runner"
	Value any    // that the panic had
	Stack []byte
}

// newPanicError is for the function that has recovered the panic.
func newPanicError(who string, value any) *PanicError {
	return &PanicError{Who: who, Value: value, Stack: debug.Stack()}
}

func (e *PanicError) Error() string { return fmt.Sprintf("%s panicked: %v", e.Who, e.Value) }

// ErrorField is an error in a log line, as zap.Error is. The stack of a panic is a field of its own.
func ErrorField(err error) zap.Field {
	var panicked *PanicError
	if !errors.As(err, &panicked) {
		return zap.Error(err)
	}
	return zap.Inline(zapcore.ObjectMarshalerFunc(func(line zapcore.ObjectEncoder) error {
		line.AddString("error", err.Error())
		line.AddByteString("stack", panicked.Stack)
		return nil
	}))
}
