package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// downloadPatience is how long Caddy may send nothing of a long answer.
const downloadPatience = time.Minute

var errSilent = errors.New("the admin endpoint says nothing any more")

// brokeOffError says that an answer ended before it was whole.
type brokeOffError struct{ err error }

func (e *brokeOffError) Error() string { return e.err.Error() }
func (e *brokeOffError) Unwrap() error { return e.err }

// download is open for an answer that is long or comes bit by bit. It fails with errSilent if Caddy sends nothing for so long, at the
// beginning or later. Errors of reading are *brokeOffErrors.
func (c *adminClient) download(ctx context.Context, call apiCall, silence time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	resp, err := c.open(ctx, call)
	watchdog.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), errSilent) {
			err = errSilent
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &downloadBody{ctx: ctx, cancel: cancel, body: resp.Body, watchdog: watchdog, silence: silence}
	return resp, nil
}

// downloadBody is a body that does not wait for ever.
type downloadBody struct {
	ctx      context.Context // of the request
	cancel   context.CancelCauseFunc
	body     io.ReadCloser
	watchdog *time.Timer
	silence  time.Duration
}

func (b *downloadBody) Read(p []byte) (int, error) {
	b.watchdog.Reset(b.silence)
	n, err := b.body.Read(p)
	b.watchdog.Stop()
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return n, err
	}
	if errors.Is(context.Cause(b.ctx), errSilent) {
		err = errSilent
	}
	return n, &brokeOffError{err}
}

func (b *downloadBody) Close() error {
	b.cancel(nil)
	return b.body.Close()
}
