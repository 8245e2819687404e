package caddyhooks

import (
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// accessEntry is the entry of a request in the access log, without its secrets.
//
// Caddy hides Authorization in its logs, but not the other headers that a webhook can carry a secret in, and it sets
// the request aside for its logs before any handler sees it. So a request with such a header is left out of Caddy's
// access log, and the same entry is written to the same loggers without them. Three things are known to Caddy alone, and
// are not in it: what log_append adds, the time that handlers ahead of this one took, and an error of the last write.
type accessEntry struct {
	loggers  []*zap.Logger
	request  *http.Request // cleaned
	body     *countedBody
	response caddyhttp.ResponseRecorder
	start    time.Time
	logs     *caddyhttp.ServerLogConfig
}

// cleanedEntry takes the entry of this request over from Caddy. It is nil if there are no secrets in the request's
// headers, or if Caddy does not log it. v is what is in force, nil before the start.
func (in *instance) cleanedEntry(v *view, w http.ResponseWriter, r *http.Request) *accessEntry {
	secretHeaders := in.secretHeaders
	if v != nil {
		secretHeaders = v.secretHeaders
	}
	if !carriesAny(r.Header, secretHeaders) {
		return nil
	}
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
	cleaned := r.Clone(r.Context())
	for _, name := range secretHeaders {
		cleaned.Header.Del(name)
	}
	body := &countedBody{ReadCloser: r.Body}
	r.Body = body
	return &accessEntry{in.accessLoggers(server.Logs, r), cleaned, body, recorder, time.Now(), server.Logs}
}

// countedBody counts the bytes that are read of a body.
type countedBody struct {
	io.ReadCloser
	read int
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += n
	return n, err
}

func (e *accessEntry) leaveToCaddy() {
	caddyhttp.SetVar(e.request.Context(), caddyhttp.LogSkipVar, false)
}

func (e *accessEntry) write() {
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
	for _, logger := range e.loggers {
		if c := logger.Check(level, message); c != nil {
			c.Write(
				zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: e.request, ShouldLogCredentials: credentials}),
				zap.Int("bytes_read", e.body.read),
				zap.String("user_id", userID),
				zap.Duration("duration", time.Since(e.start)),
				zap.Int("size", e.response.Size()),
				zap.Int("status", e.response.Status()),
				zap.Object("resp_headers", caddyhttp.LoggableHTTPHeader{Header: e.response.Header(), ShouldLogCredentials: credentials}),
			)
		}
	}
}

func carriesAny(h http.Header, names []string) bool {
	for _, name := range names {
		if _, ok := h[name]; ok {
			return true
		}
	}
	return false
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

// accessLogModule stands for Caddy's access logger, to get a logger of its name.
type accessLogModule struct{}

func (accessLogModule) CaddyModule() caddy.ModuleInfo {
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

// accessLoggers are the loggers that Caddy would write the request to.
func (in *instance) accessLoggers(logs *caddyhttp.ServerLogConfig, r *http.Request) []*zap.Logger {
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
		loggers[i] = in.accessLog
		if name != "" {
			loggers[i] = in.accessLog.Named(name)
		}
	}
	return loggers
}

// loggerNames looks the host up, then its domains with ever more labels made wildcards.
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
