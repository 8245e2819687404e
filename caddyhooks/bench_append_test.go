package caddyhooks_test

import (
	"crypto/sha256"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(appender{})
	httpcaddyfile.RegisterHandlerDirective("append_to", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		a := new(appender)
		h.Next()
		if !h.AllArgs(&a.Path) {
			return nil, h.ArgErr()
		}
		return a, nil
	})
}

// appender is the least that a server has to do for a request that must not be lost: it hashes the body, appends it to a file, and answers
// when it is on the disk. What comes while it waits for the disk goes with the next wait. Benchmarks measure hooks beside it.
type appender struct {
	Path string `json:"path"`

	*appended
}

type appended struct {
	file    *os.File
	mu      sync.Mutex
	news    sync.Cond
	waiting []byte
	next    *diskWait // of what waits
	closed  bool
}

// diskWait is a wait for the disk, and how it went.
type diskWait struct {
	done chan struct{}
	err  error
}

func (appender) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.append_to", New: func() caddy.Module { return new(appender) }}
}

func (a *appender) Provision(caddy.Context) (err error) {
	a.appended = &appended{next: newDiskWait()}
	a.news.L = &a.mu
	if a.file, err = os.Create(a.Path); err == nil {
		go a.write()
	}
	return err
}

func newDiskWait() *diskWait { return &diskWait{done: make(chan struct{})} }

func (a *appender) Cleanup() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.news.Signal()
	return nil
}

func (a *appender) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	a.mu.Lock()
	a.waiting = append(append(a.waiting, sum[:]...), body...)
	wait := a.next
	a.news.Signal()
	a.mu.Unlock()
	<-wait.done
	if wait.err == nil {
		_, err = io.WriteString(w, "ok")
		return err
	}
	return wait.err
}

// write appends all that waits, again and again.
func (a *appended) write() {
	defer a.file.Close()
	var data []byte
	for {
		a.mu.Lock()
		for len(a.waiting) == 0 && !a.closed {
			a.news.Wait()
		}
		if len(a.waiting) == 0 {
			a.mu.Unlock()
			return
		}
		wait := a.next
		data, a.waiting, a.next = a.waiting, data[:0], newDiskWait()
		a.mu.Unlock()
		if _, wait.err = a.file.Write(data); wait.err == nil {
			wait.err = toDisk(a.file)
		}
		close(wait.done)
	}
}

var (
	_ caddy.Provisioner           = (*appender)(nil)
	_ caddy.CleanerUpper          = (*appender)(nil)
	_ caddyhttp.MiddlewareHandler = (*appender)(nil)
)
