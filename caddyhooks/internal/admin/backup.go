package admin

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

func init() {
	InstanceEndpoints.Handle("GET /backup", serveBackup)
}

// A client has backupPatience for each backupPart of a backup. One that is slower is cut off: the file of the store grows while it reads.
const backupPart = 1 << 20

var BackupPatience = 30 * time.Second

// storeWithAdvice is the configuration of a store that is backed up in another way.
type storeWithAdvice interface {
	// BackupAdvice says how, or why not, in a sentence.
	BackupAdvice(instance string) string
}

// serveBackup sends a copy of the store, as it is at this moment, with all its secrets.
func serveBackup(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get(api.OperatorHeader) == "" {
		// An agent or a server that can be talked into a GET must not bring out all secrets with it: it sends no such header.
		return api.Errorf(http.StatusForbidden, "a backup has all secrets in it, so say who takes it, in the header %s; `caddy hooks backup` "+
			"does so", api.OperatorHeader)
	}
	store, ok := in.Service.Store.(engine.BackedUpStore)
	if !ok {
		advice := "this store cannot be backed up by caddyhooks"
		if opener, ok := in.Opener.(storeWithAdvice); ok {
			advice = opener.BackupAdvice(in.Name)
		}
		return api.Errorf(http.StatusNotImplemented, "%s", advice)
	}
	backup, err := store.StartBackup(in.Name)
	if errors.Is(err, engine.ErrBackupUnderWay) {
		return api.Conflictf("another backup of the hooks instance %q is under way: wait until it is over", in.Name)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(backup.Context())
	defer in.StreamEnd.WhenOver(func() { cancel(errReloaded) })()
	defer context.AfterFunc(r.Context(), func() { cancel(errClientGone) })()
	out := newBackupWriter(ctx, w)
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(backup.Size(), 10)) // so that a client notices if something is missing
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	began := time.Now()
	buffered := bufio.NewWriterSize(out, backupPart)
	_, err = backup.WriteTo(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	out.close()
	cancel(context.Canceled)
	err = errors.Join(err, backup.Close())
	by := zap.String("by", callerFrom(r).String())
	if err != nil { // the client gets less than it was told, which is all that can be said now
		in.Log.Warn("backup broke off", by, zap.Error(err))
		return nil
	}
	in.Log.Info("backup taken", by, zap.Int64("bytes", backup.Size()), zap.Duration("took", time.Since(began)))
	return nil
}

var (
	errReloaded   = errors.New("Caddy loaded another configuration, or stops") //nolint:staticcheck // a name
	errClientGone = errors.New("the client is gone")
)

// backupWriter cuts off a client that is too slow, and one whose backup has to end.
type backupWriter struct {
	ctx        context.Context //nolint:containedctx // a writer has no other way to know
	w          http.ResponseWriter
	controller *http.ResponseController
	unwatch    func() bool
}

func newBackupWriter(ctx context.Context, w http.ResponseWriter) *backupWriter {
	out := &backupWriter{ctx: ctx, w: w, controller: http.NewResponseController(w)}
	_ = out.controller.SetReadDeadline(time.Time{}) // the request is read, and may take longer than that of another one
	out.unwatch = context.AfterFunc(ctx, func() { _ = out.controller.SetWriteDeadline(time.Now()) })
	return out
}

func (out *backupWriter) Write(p []byte) (int, error) {
	_ = out.controller.SetWriteDeadline(time.Now().Add(BackupPatience)) // the admin server can
	if out.ctx.Err() != nil {                                           // which may have been too late to cut off this write
		return 0, context.Cause(out.ctx)
	}
	return out.w.Write(p)
}

// close ends the use of the writer.
func (out *backupWriter) close() {
	if out.unwatch() {
		_ = out.controller.SetWriteDeadline(time.Time{})
	}
}
