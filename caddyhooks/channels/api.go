package channels

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// API is the configuration of a channel that calls a service over HTTP. Such channels embed it.
type API struct {
	// Where the service is.
	URL string `json:"url,omitempty"`

	// The token to use there. Placeholders such as {env.X} and {file.X} are replaced.
	Token string `json:"token,omitempty"`

	// How long one request may take. Default: 15s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	Recipients

	url, token string   // the same, placeholders replaced
	secrets    []string // texts to mask in answers of the service
	transport  *http.Transport
}

// provision replaces placeholders and makes the transport. name is that of the channel, check judges the URL, and validTo is the
// ValidTo of the channel.
func (a *API) provision(name, defaultURL string, check, validTo func(string) error) error {
	if err := a.provisionRecipients(name, validTo); err != nil {
		return err
	}
	if a.Token != "" {
		var err error
		if a.token, err = caddyconf.ResolveToken(a.Token); err != nil {
			return fmt.Errorf("channel %s: the token %w", name, err)
		}
		a.secrets = append(a.secrets, a.token)
	}
	if a.url = caddy.NewReplacer().ReplaceKnown(a.URL, ""); a.url == "" {
		a.url = defaultURL
	}
	if err := check(a.url); err != nil {
		return fmt.Errorf("channel %s: %w", name, err)
	}
	if a.Timeout < 0 {
		return fmt.Errorf("channel %s: the timeout must not be negative", name)
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	a.transport = &http.Transport{
		// The URL is the operator's, and so is the environment.
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConns:           8,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        30 * time.Second,
	}
	return nil
}

// provisionBot is provision for a service that is known and wants the token of a bot.
func (a *API) provisionBot(name, defaultURL string, validTo func(string) error) error {
	if a.Token == "" {
		return fmt.Errorf("channel %s needs the token of a bot", name)
	}
	return a.provision(name, defaultURL, checkBaseURL, validTo)
}

// checkURL does not quote the URL: it may hold a secret.
func checkURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("the URL must start with http:// or https:// and name a host")
	case u.User != nil:
		return errors.New("the URL must not hold a user name or password")
	}
	return nil
}

// checkBaseURL is checkURL for a URL that paths are added to.
func checkBaseURL(raw string) error {
	if strings.ContainsAny(raw, "?#") {
		return errors.New("the URL must not have a query or a fragment")
	}
	return checkURL(raw)
}

// Cleanup closes idle connections. Requests that are under way go on.
func (a *API) Cleanup() error {
	if a.transport != nil {
		a.transport.CloseIdleConnections()
	}
	return nil
}

// unmarshalBot parses the configuration of channel name, whose service is known and wants a token:
//
//	channel … <name> <token> {
//		url      <url>
//		timeout  <duration>
//		allow_to <to>...
//	}
func (a *API) unmarshalBot(d *caddyfile.Dispenser, name string, validTo func(to string) error) (err error) {
	d.Next()
	if a.Token, err = caddyconf.Word(d); err != nil {
		// err would quote a token that is followed by another.
		return d.Errf("channel %s takes one secret, the token of the bot, which must not be blank%s", name, caddyconf.Unset)
	}
	return caddyconf.ReadBlock(d, "channel "+name,
		caddyconf.Set("url", &a.URL, caddyconf.CheckedText(checkBaseURL)), timeoutDirective(&a.Timeout),
		a.allowDirective(validTo))
}

// unmarshalOnServer parses the configuration of channel name, whose service is on servers of many. takes names the arguments:
//
//	channel … <name> <url> <token> {
//		timeout  <duration>
//		allow_to <to>...
//	}
func (a *API) unmarshalOnServer(d *caddyfile.Dispenser, name, takes string, validTo func(to string) error) error {
	d.Next()
	args, err := caddyconf.List(d)
	if err != nil || len(args) != 2 || strings.TrimSpace(args[1]) == "" {
		return d.Errf("channel %s takes %s, which must not be blank%s", name, takes, caddyconf.Unset)
	}
	a.URL, a.Token = args[0], args[1]
	if err := checkBaseURL(a.URL); err != nil && !caddyconf.HasPlaceholder(a.URL) {
		return d.WrapErr(err)
	}
	return caddyconf.ReadBlock(d, "channel "+name, timeoutDirective(&a.Timeout), a.allowDirective(validTo))
}

// unmarshalURL parses the URL that is the argument of channel name.
func (a *API) unmarshalURL(d *caddyfile.Dispenser, name string) error {
	d.Next()
	// Errors do not quote the URL: some URLs are secrets.
	urls, err := caddyconf.List(d)
	if err != nil || len(urls) != 1 {
		return d.Errf("channel %s takes one URL%s", name, caddyconf.Unset)
	}
	a.URL = urls[0]
	if err := checkURL(a.URL); err != nil && !caddyconf.HasPlaceholder(a.URL) {
		return d.WrapErr(err)
	}
	return nil
}

func timeoutDirective(timeout *caddy.Duration) caddyconf.Directive {
	return caddyconf.Set("timeout", timeout, caddyconf.Duration(time.Millisecond))
}

// encodeJSON encodes a value of texts and numbers, which cannot fail.
func encodeJSON(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// request makes a request, with JSON for its body if there is one. path goes after the URL of the service.
func (a *API) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	target := a.url
	if path != "" {
		target = strings.TrimSuffix(target, "/") + path
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		// The error would quote the URL, which may hold the token.
		return nil, &engine.FinalError{Err: errors.New("the request could not be made")}
	}
	req.Header.Set("User-Agent", "caddy-hooks")
	if body != nil {
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	if traceParent := engine.DeliveryTraceParent(ctx); traceParent != "" {
		req.Header.Set("Traceparent", traceParent)
	}
	return req, nil
}

// A judge corrects an outcome: many services tell success and failure in the body of an answer. It gets the outcome as the status
// has it, and the body, nil if that is no JSON object.
type judge func(o *outbound.Outcome, answer map[string]any)

// call sends a request and records the outcome in d. judge may be nil.
func (a *API) call(d *engine.Delivery, req *http.Request, judge judge) error {
	if judge == nil {
		return a.callReading(d, req, nil)
	}
	return a.callReading(d, req, func(o *outbound.Outcome, _ http.Header, answer map[string]any) { judge(o, answer) })
}

// callReading is call for services that say something in the header of an answer, too.
func (a *API) callReading(
	d *engine.Delivery, req *http.Request, judge func(o *outbound.Outcome, header http.Header, answer map[string]any),
) error {
	timeout := time.Duration(a.Timeout)
	if timeout == 0 {
		timeout = 15 * time.Second
	}
	recorder := &answerRecorder{RoundTripper: a.transport}
	o := outbound.SendOnce(recorder, req, timeout)
	if o.Status != 0 && judge != nil {
		if o.RetryAfter == 0 {
			o.RetryAfter = outbound.RetryAfter(recorder.header.Get("Retry-After"), time.Now())
		}
		var answer map[string]any
		if value, err := strictjson.Parse(recorder.body); err == nil {
			answer, _ = value.(map[string]any)
		}
		judge(&o, recorder.header, answer)
	}
	secrets := a.secrets
	if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok && token != a.token {
		secrets = append(slices.Clip(secrets), token) // one that the service made
	}
	// Secrets are looked for before the rest is cut off: the beginning of one would not be found after.
	shown := recorder.body
	for _, secret := range secrets {
		shown = mask(shown, secret)
		o.Reason = string(mask([]byte(o.Reason), secret))
	}
	o.Answer = shown[:min(len(shown), keptAnswer)]
	return o.NoteIn(d)
}

const (
	// maxAnswer leaves room for services that answer with the whole message, every character of it escaped.
	maxAnswer = 256 << 10
	// keptAnswer bounds the part of an answer that is stored, as for callbacks.
	keptAnswer = 4 << 10
)

// answerRecorder is a transport that records one answer as a whole: an Outcome has only the beginning of it.
type answerRecorder struct {
	http.RoundTripper
	header http.Header
	body   []byte
}

func (w *answerRecorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	w.header = resp.Header
	// After 101 the body is the bare connection, and reading from that does not end with the context.
	if resp.StatusCode != http.StatusSwitchingProtocols {
		// An answer that breaks off is no complete JSON, and counts as a failure.
		w.body, _ = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		resp.Body = struct {
			io.Reader
			io.Closer
		}{bytes.NewReader(w.body), resp.Body}
	}
	return resp, nil
}

// mask replaces a secret in an answer with dots, also where its characters are escaped as in a URL, in JSON or in HTML.
func mask(answer []byte, secret string) []byte {
	var masked []byte
	from, plain := 0, []byte(secret)
	for i := 0; i < len(answer); i++ {
		n := escapedPrefix(answer[i:], secret)
		if bytes.HasPrefix(answer[i:], plain) {
			n = len(plain)
		}
		if n > 0 {
			masked = append(append(masked, answer[from:i]...), "••••"...)
			i += n - 1
			from = i + 1
		}
	}
	return append(masked, answer[from:]...)
}

// escapedPrefix is the length of the secret that an answer begins with if escapes in it are resolved, 0 if it does not.
func escapedPrefix(answer []byte, secret string) int {
	n := 0
	for secret != "" {
		if n == len(answer) {
			return 0
		}
		text, size := unescape(answer[n:])
		rest, ok := strings.CutPrefix(secret, text)
		if !ok {
			return 0
		}
		secret = rest
		n += size
	}
	return n
}

// unescape reads a character, escaped or not, and says how many bytes it took.
func unescape(answer []byte) (text string, size int) {
	switch answer[0] {
	case '%':
		if len(answer) >= 3 {
			if b, err := strconv.ParseUint(string(answer[1:3]), 16, 8); err == nil {
				return string([]byte{byte(b)}), 3
			}
		}
	case '\\':
		if len(answer) >= 6 && answer[1] == 'u' {
			if r, err := strconv.ParseUint(string(answer[2:6]), 16, 16); err == nil {
				return string(rune(r)), 6
			}
		}
		if len(answer) >= 2 && strings.IndexByte(`"\/'`, answer[1]) >= 0 {
			return string(answer[1:2]), 2
		}
	case '&':
		if end := bytes.IndexByte(answer[:min(len(answer), 10)], ';'); end > 0 {
			if text := html.UnescapeString(string(answer[:end+1])); utf8.RuneCountInString(text) == 1 {
				return text, end + 1
			}
		}
	}
	return string(answer[:1]), 1
}

// answerReason is the reason of a failure that the service reported with a status or a code of its own.
func answerReason(service string, code any, why string) string {
	if why == "" {
		return fmt.Sprintf("%s answered %v", service, code)
	}
	return fmt.Sprintf("%s answered %v: %s", service, code, why)
}

// explainStatus explains a status to an operator, for answers that say no more.
func explainStatus(status int) string {
	switch {
	case 300 <= status && status <= 399:
		return "redirects are not followed"
	case status == http.StatusUnauthorized:
		return "it does not take the token of this channel"
	case status == http.StatusForbidden:
		return "the token of this channel does not allow this"
	case status == http.StatusNotFound:
		return "the url or the token of this channel is wrong, or there is no such chat"
	case status == http.StatusTooManyRequests:
		return "it asks for a pause"
	}
	return ""
}

// markUnexpected makes an outcome a failure because the service would not answer like that. Another attempt may reach the
// service itself.
func markUnexpected(o *outbound.Outcome, service string) {
	o.Delivered, o.Final = false, false
	o.Reason = fmt.Sprintf("the answer had the status %d, but is not what %s would say", o.Status, service)
}

// readPause reads the pause that a service asks for, a number of the given unit. It is a day at most, and 0 if the number is
// missing or makes no sense.
func readPause(v any, unit time.Duration) time.Duration {
	number, _ := v.(json.Number)
	n, err := strconv.ParseFloat(string(number), 64)
	if err != nil || n <= 0 || n > math.MaxInt32*float64(time.Second/unit) {
		return 0
	}
	seconds := math.Ceil(n * unit.Seconds())
	return outbound.RetryAfter(strconv.FormatInt(int64(seconds), 10), time.Now())
}

// readReset reads the moment at which a service takes requests again, a number of the given unit since 1970, as the pause until then. It
// is a day at most, and 0 if the number makes no sense.
func readReset(value string, unit time.Duration) time.Duration {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/int64(unit) {
		return 0
	}
	pause := time.Until(time.Unix(0, n*int64(unit))).Truncate(time.Second) + time.Second
	return min(max(pause, time.Second), 24*time.Hour)
}

// sendParts sends the parts of an answer, from the first that has not arrived. An error ends the attempt, and the next attempt
// begins with the same part.
func sendParts(d *engine.Delivery, parts []string, send func(part string) error) error {
	if len(parts) == 0 {
		return &engine.FinalError{Err: errors.New("the answer is blank, and the channel takes no blank messages")}
	}
	for ; d.Sent < len(parts); d.Sent++ {
		if err := send(parts[d.Sent]); err != nil {
			return err
		}
	}
	return nil
}
