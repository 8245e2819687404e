package observe

import (
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

// AccessLog writes the entries of webhooks to the access logs of Caddy.
type AccessLog struct {
	Logger   *zap.Logger
	appended atomic.Pointer[map[*caddyhttp.Server][]appendedField] // by log_append
}

// AccessEntry is the access log entry of a request, without its secrets.
//
// Caddy hides Authorization in its logs, but not the other headers of a webhook that may hold a secret. It copies the
// request for its logs before any handler runs, and then drops headers such as X_Service_Token, which no handler sees. So
// webhooks are left out of Caddy's access log, as are other requests with a secret header, and an entry without the secret
// is written to the same loggers, with the fields of log_append and tracing, and the uuid of the request. Some facts are known to Caddy
// alone and are missing in that entry: the time that earlier handlers took, an error of the last write, and fields of other modules.
type AccessEntry struct {
	loggers  []*zap.Logger
	request  *http.Request // cleaned
	body     *CountedBody
	response caddyhttp.ResponseRecorder
	start    time.Time
	logs     *caddyhttp.ServerLogConfig
	appended func() []zap.Field // by log_append
}

// redacted stands for a secret, as in Caddy's own logs.
const redacted = "REDACTED"

// TakeOver stops Caddy from logging the request and returns the entry to be written instead, without the secret headers. It returns nil
// if Caddy does not log the request.
func (l *AccessLog) TakeOver(w http.ResponseWriter, r *http.Request, secrets iter.Seq[auth.HeaderNames]) *AccessEntry {
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server == nil || server.Logs == nil || !logsHost(server.Logs, r.Host) {
		return nil
	}
	if skip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.LogSkipVar).(bool); skip {
		return nil
	}
	recorder := findRecorder(w)
	if recorder == nil {
		return nil
	}
	caddyhttp.SetVar(r.Context(), caddyhttp.LogSkipVar, true)
	body := &CountedBody{ReadCloser: r.Body}
	entry := &AccessEntry{l.loggers(server.Logs, r), r.Clone(r.Context()), body, recorder, time.Now(), server.Logs,
		func() []zap.Field { return l.appendedTo(server, r) }}
	for secret := range secrets {
		entry.hide(secret)
	}
	r.Body = body
	caddyhttp.SetVar(r.Context(), accessEntryVar, entry)
	return entry
}

// accessEntryVar is the variable of a request that has its entry. Another instance may have made it.
const accessEntryVar = "hooks.access_entry"

// EntryOf returns the entry of a request, nil if it has none.
func EntryOf(r *http.Request) *AccessEntry {
	entry, _ := caddyhttp.GetVar(r.Context(), accessEntryVar).(*AccessEntry)
	return entry
}

// hide hides headers with secrets.
func (e *AccessEntry) hide(secret auth.HeaderNames) {
	for name := range e.request.Header {
		if secret.Has(name) {
			e.request.Header[name] = []string{redacted}
		}
	}
}

// CountedBody counts the bytes that are read of a body.
type CountedBody struct {
	io.ReadCloser
	Count int
}

func (b *CountedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.Count += n
	return n, err
}

// HideQuery hides the values in the query of a webhook, which needs none but wait: some callers put their token there.
func (e *AccessEntry) HideQuery() {
	if e == nil {
		return
	}
	path, query, ok := strings.Cut(e.request.RequestURI, "?")
	if !ok {
		return
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		if name, _, ok := strings.Cut(part, "="); !ok {
			parts[i] = redacted
		} else if name != "wait" {
			parts[i] = name + "=" + redacted
		}
	}
	e.request.RequestURI = path + "?" + strings.Join(parts, "&")
}

func (e *AccessEntry) LeaveToCaddy() {
	caddyhttp.SetVar(e.request.Context(), caddyhttp.LogSkipVar, false)
}

func (e *AccessEntry) Write() {
	level := zapcore.InfoLevel
	if e.response.Status() >= 500 {
		level = zapcore.ErrorLevel
	}
	userID := ""
	if repl, ok := e.request.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		userID, _ = repl.GetString("http.auth.user.id")
	}
	message := "handled request"
	if unhandled, _ := caddyhttp.GetVar(e.request.Context(), "unhandled").(bool); unhandled {
		message = "NOP"
	}
	credentials := e.logs.ShouldLogCredentials
	var added []zap.Field
	if len(e.loggers) > 0 {
		added = append(e.appended(), identity(e.request)...)
	}
	for _, logger := range e.loggers {
		if c := logger.Check(level, message); c != nil {
			c.Write(append([]zap.Field{
				zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: e.request, ShouldLogCredentials: credentials}),
				zap.Int("bytes_read", e.body.Count),
				zap.String("user_id", userID),
				zap.Duration("duration", time.Since(e.start)),
				zap.Int("size", e.response.Size()),
				zap.Int("status", e.response.Status()),
				zap.Object("resp_headers", caddyhttp.LoggableHTTPHeader{Header: e.response.Header(), ShouldLogCredentials: credentials}),
			}, added...)...)
		}
	}
}

// findRecorder finds the recorder that Caddy put beneath w to log the response.
func findRecorder(w http.ResponseWriter) caddyhttp.ResponseRecorder {
	for w != nil {
		if rec, ok := w.(caddyhttp.ResponseRecorder); ok {
			return rec
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = wrapper.Unwrap()
	}
	return nil
}

// AccessLogModule gets a logger with the name of Caddy's access logger.
type AccessLogModule struct{}

func (AccessLogModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.log.access"}
}

// logsHost reports whether Caddy logs requests for this host.
func logsHost(logs *caddyhttp.ServerLogConfig, hostport string) bool {
	host := withoutPort(hostport)
	for name := range logs.LoggerNames {
		if certmagic.MatchWildcard(host, name) {
			return true
		}
	}
	for _, skipped := range logs.SkipHosts {
		if certmagic.MatchWildcard(host, skipped) {
			return false
		}
	}
	return !logs.SkipUnmappedHosts
}

// loggers are those of Caddy for this request.
func (l *AccessLog) loggers(logs *caddyhttp.ServerLogConfig, r *http.Request) []*zap.Logger {
	var names []string
	if chosen, ok := caddyhttp.GetVar(r.Context(), caddyhttp.AccessLoggerNameVarKey).([]any); ok {
		for _, name := range chosen {
			if name, ok := name.(string); ok {
				names = append(names, name)
			}
		}
	} else {
		names = loggerNames(logs, withoutPort(r.Host))
	}
	loggers := make([]*zap.Logger, len(names))
	for i, name := range names {
		loggers[i] = l.Logger
		if name != "" {
			loggers[i] = l.Logger.Named(name)
		}
	}
	return loggers
}

// loggerNames looks up the host, and then the host with more and more leading labels replaced by wildcards.
func loggerNames(logs *caddyhttp.ServerLogConfig, host string) []string {
	if names, ok := logs.LoggerNames[host]; ok {
		return names
	}
	labels := strings.Split(host, ".")
	for i := range labels {
		labels[i] = "*"
		if names, ok := logs.LoggerNames[strings.Join(labels, ".")]; ok {
			return names
		}
	}
	return []string{logs.DefaultLoggerName}
}

func withoutPort(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return hostport
	}
	return host
}
