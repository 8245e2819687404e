package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/npmtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Secrets of callbacks. The old one is replaced by the new one.
const (
	oldCallbackSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newCallbackSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// Receivers use libraries of their own, which must agree with us on what is signed, and how.
func TestCallbacksVerifyWithOtherLibraries(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	long := strings.Repeat("0123456789abcdé\n", 1<<20/17) + "!"
	long += strings.Repeat("!", 1<<20-len(long))
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
		switch message := tn.Text("message"); message {
		case "fail":
			w.WriteHeader(http.StatusInternalServerError)
		case "be late":
			<-r.Context().Done()
		case "say nothing":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"text":""}`)
		case "say much":
			_, _ = io.WriteString(w, long)
		default:
			_, _ = io.WriteString(w, message)
		}
	})
	rc := startReluctantReceiver(t)
	s := hookstest.StartProcess(t, signingHooks(rn, oldCallbackSecret))

	const text, errorBody = "text/plain; charset=utf-8", "application/json"
	cases := []struct {
		name, message, body, status, contentType string
		attempts                                 int
	}{
		{"text", "All is well.", "All is well.", "completed", text, 1},
		{"unicode", "Grüße, 日本語, 👩‍👩‍👧, e\u0301 \u2028 \ufffd \u202e", "Grüße, 日本語, 👩‍👩‍👧, e\u0301 \u2028 \ufffd \u202e", "completed", text, 1},
		{"control characters", "\ufeffa\x00b\r\n\t\x7f\n", "\ufeffa\x00b\r\n\t\x7f\n", "completed", text, 1},
		{"text that is JSON", ` {"b":1.10, "a":"<&>"} `, ` {"b":1.10, "a":"<&>"} `, "completed", text, 1},
		{"text that looks signed", "msg_1.1614265330.a", "msg_1.1614265330.a", "completed", text, 1},
		{"empty text", "say nothing", "", "completed", text, 1},
		{"1 MiB", "say much", long, "completed", text, 1},
		{"error", "fail", "", "failed", errorBody, 1},
		{"timeout", "be late", "", "timed_out", errorBody, 1},
		{"text, retried", "Once more.", "Once more.", "completed", text, 2},
		{"error, retried", "fail", "", "failed", errorBody, 2},
	}
	path := func(i int) string {
		if cases[i].attempts > 1 {
			return fmt.Sprintf("/%d/again", i)
		}
		return fmt.Sprintf("/%d", i)
	}
	for i, c := range cases {
		s.Accept(hookstest.AsJSON(t, map[string]any{"message": c.message, "callbackUrl": rc.URL + path(i), "timeoutSeconds": 1}))
	}
	var checks []check
	for i, c := range cases {
		attempts := rc.wait(path(i), c.attempts)
		for _, got := range attempts {
			if c.contentType == errorBody {
				hookstest.Response{Body: got.Body, Header: got.Header}.WantError(t, 0)
			} else if got.Body != c.body {
				t.Errorf("%s: the body is %.100q", c.name, got.Body)
			}
			h, first := got.Header, attempts[0].Header
			if h.Get("Content-Type") != c.contentType || h.Get("X-Service-Run-Status") != c.status || h.Get("Webhook-Id") != first.Get("Webhook-Id") {
				t.Errorf("%s: the headers are %v", c.name, h)
			}
			checks = append(checks, check{c.name, oldCallbackSecret, got, verified})
			checks = append(checks, forgeries(t, c.name, got)...)
		}
	}
	v.want(checks)
}

// forgeries are ways to make something else of a callback, which must not pass for one.
func forgeries(t *testing.T, name string, genuine hookstest.Received) []check {
	t.Helper()
	timestamp, err := strconv.Atoi(genuine.Header.Get("Webhook-Timestamp"))
	if err != nil {
		t.Fatalf("%s: the timestamp is %q", name, genuine.Header.Get("Webhook-Timestamp"))
	}
	altered := func(how string, header, value string) check {
		forged := genuine
		forged.Header = maps.Clone(genuine.Header)
		forged.Header.Set(header, value)
		return check{name + ", altered " + how, oldCallbackSecret, forged, mismatch}
	}
	checks := []check{
		altered("id", "Webhook-Id", genuine.Header.Get("Webhook-Id")+"0"),
		altered("earlier time", "Webhook-Timestamp", strconv.Itoa(timestamp-1)),
		altered("later time", "Webhook-Timestamp", strconv.Itoa(timestamp+1)),
		altered("scheme", "Webhook-Signature", strings.Replace(genuine.Header.Get("Webhook-Signature"), "v1,", "v2,", 1)),
		{name + ", wrong secret", newCallbackSecret, genuine, mismatch},
	}
	for how, body := range map[string]string{"longer body": genuine.Body + " ", "body": "x" + genuine.Body[min(1, len(genuine.Body)):]} {
		forged := genuine
		forged.Body = body
		checks = append(checks, check{name + ", altered " + how, oldCallbackSecret, forged, mismatch})
	}
	return checks
}

func TestCallbackSecretIsReplacedWithoutAGap(t *testing.T) {
	t.Parallel()
	v := newVerifier(t)
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, tn hookstest.Turn) {
		_, _ = io.WriteString(w, tn.Text("message"))
	})
	rc := startReluctantReceiver(t)
	s := hookstest.StartProcess(t, signingHooks(rn, oldCallbackSecret))
	var checks []check
	add := func(name, secret, verdict string, all []hookstest.Received) {
		for _, got := range all {
			checks = append(checks, check{name, secret, got, verdict})
		}
	}
	send := func(path string) []hookstest.Received {
		s.Accept(hookstest.AsJSON(t, map[string]string{"message": "a", "callbackUrl": rc.URL + path}))
		return rc.wait(path, 1)
	}

	before := send("/before")
	add("before, old secret", oldCallbackSecret, verified, before)
	add("before, new secret", newCallbackSecret, mismatch, before)

	joined := callbacksDuring(s, rc, "/added", func() { s.Load(signingHooks(rn, newCallbackSecret, oldCallbackSecret)) })
	add("while the new secret is added, old secret", oldCallbackSecret, verified, joined)
	both := send("/both")
	add("both, old secret", oldCallbackSecret, verified, both)
	add("both, new secret", newCallbackSecret, verified, both)

	// A callback that fails while the old secret is dropped is signed anew, and is still the same one.
	first := send("/held/again")
	left := callbacksDuring(s, rc, "/dropped", func() { s.Load(signingHooks(rn, newCallbackSecret)) })
	rc.release()
	add("while the old secret is dropped, new secret", newCallbackSecret, verified, left)
	after := send("/after")
	add("after, new secret", newCallbackSecret, verified, after)
	add("after, old secret", oldCallbackSecret, mismatch, after)

	second := rc.wait("/held/again", 2)[1:]
	add("first attempt, old secret", oldCallbackSecret, verified, first)
	add("second attempt, new secret", newCallbackSecret, verified, second)
	add("second attempt, old secret", oldCallbackSecret, mismatch, second)
	if one, other := first[0].Header.Get("Webhook-Id"), second[0].Header.Get("Webhook-Id"); one != other {
		t.Errorf("the attempts have the ids %s and %s", one, other)
	}
	v.want(checks)
}

// signingHooks is a hooks directive with callbacks that are signed.
func signingHooks(rn *hookstest.Runner, secrets ...string) string {
	return hookstest.Hooks(rn, "callbacks {\n allow 127.0.0.0/8\n ports *\n secret "+strings.Join(secrets, " ")+"\n }")
}

// callbacksDuring are the callbacks of runs that were accepted before, while and after something was done.
func callbacksDuring(s *hookstest.Server, rc *reluctantReceiver, path string, do func()) []hookstest.Received {
	s.T.Helper()
	const enough = 50 // before, and after
	var asking sync.WaitGroup
	begun, done := make(chan struct{}), make(chan struct{})
	sent := 0
	asking.Go(func() {
		for after := 0; after < enough && !s.T.Failed(); sent++ {
			if sent == enough {
				close(begun)
			}
			select {
			case <-done:
				after++
			default:
			}
			insist(s, fmt.Sprintf(`{"message":"number %d","callbackUrl":%q}`, sent, rc.URL+path), fmt.Sprintf("%s-%d", path, sent))
		}
	})
	hookstest.ReceiveWithin(s.T, "requests are under way", begun)
	do()
	close(done)
	asking.Wait()
	return rc.wait(path, sent)
}

// insist sends an agent request until it is accepted: a connection may break while a configuration is loaded.
func insist(s *hookstest.Server, body, key string) {
	var resp hookstest.Response
	var err error
	for range 5 {
		resp, err = hookstest.TryRequest("POST", s.URL+"/api/hooks/agent", body, "Authorization", "Bearer "+hookstest.Token, "Idempotency-Key", key)
		if err == nil {
			break
		}
	}
	if err != nil || resp.Status != http.StatusAccepted {
		s.T.Errorf("got %d %s, %v", resp.Status, resp.Body, err)
	}
}

// reluctantReceiver keeps the callbacks it gets. Those to a path that ends in /again must be sent again, and have to wait
// for release to be told so if it begins with /held.
type reluctantReceiver struct {
	*httptest.Server
	t       testing.TB
	release func()

	mu  sync.Mutex
	got map[string][]hookstest.Received // by path
}

func startReluctantReceiver(t testing.TB) *reluctantReceiver {
	t.Helper()
	released := make(chan struct{})
	rc := &reluctantReceiver{t: t, release: sync.OnceFunc(func() { close(released) }), got: make(map[string][]hookstest.Received)}
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("receiving a callback: %v", err)
		}
		rc.mu.Lock()
		rc.got[r.URL.Path] = append(rc.got[r.URL.Path], hookstest.Received{Path: r.URL.Path, Header: r.Header.Clone(), Body: string(body)})
		rc.mu.Unlock()
		if strings.HasPrefix(r.URL.Path, "/held/") {
			<-released
		}
		if strings.HasSuffix(r.URL.Path, "/again") && r.Header.Get("X-Service-Attempt") == "1" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(rc.Server.Close)
	t.Cleanup(rc.release)
	return rc
}

// wait waits until there were so many callbacks to a path, and returns them.
func (rc *reluctantReceiver) wait(path string, n int) (all []hookstest.Received) {
	rc.t.Helper()
	hookstest.Within(rc.t, time.Minute, fmt.Sprintf("%d callbacks to %s come", n, path), func() bool {
		rc.mu.Lock()
		defer rc.mu.Unlock()
		all = slices.Clone(rc.got[path])
		return len(all) >= n
	})
	if len(all) > n {
		rc.t.Errorf("%d callbacks came to %s, want %d", len(all), path, n)
	}
	return all
}

// check is what the libraries are to say of a callback.
type check struct {
	name    string
	secret  string // that the receiver has
	got     hookstest.Received
	verdict string
}

const (
	verified = "verified"
	mismatch = "No matching signature found"
)

// verifier asks libraries of other people about callbacks.
type verifier struct {
	t   testing.TB
	dir string
}

func newVerifier(t testing.TB) *verifier {
	t.Helper()
	dir, err := installLibraries()
	if err != nil {
		t.Fatal(err)
	}
	return &verifier{t, dir}
}

// installLibraries installs the libraries, once for all tests.
var installLibraries = sync.OnceValues(func() (dir string, err error) {
	shared, err := hookstest.SharedDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(shared, "verify")
	if err := os.CopyFS(dir, os.DirFS("testdata/verify")); err != nil {
		return "", err
	}
	return dir, npmtest.Install(dir)
})

func (v *verifier) run(in []byte, name string, args ...string) (out []byte) {
	v.t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stderr = v.dir, bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	if err != nil {
		v.t.Fatalf("%s: %v\n%s", cmd, err, stderr.Bytes())
	}
	return out
}

// want asks both libraries about all callbacks.
func (v *verifier) want(checks []check) {
	v.t.Helper()
	type question struct {
		Secret  string            `json:"secret"`
		Headers map[string]string `json:"headers"`
		Body    []byte            `json:"body"`
	}
	questions := make([]question, len(checks))
	for i, c := range checks {
		questions[i] = question{c.secret, make(map[string]string), []byte(c.got.Body)}
		for name, values := range c.got.Header {
			questions[i].Headers[name] = strings.Join(values, ", ")
		}
	}
	in, err := json.Marshal(questions)
	if err != nil {
		v.t.Fatal(err)
	}
	var verdicts []map[string]string
	if err := json.Unmarshal(v.run(in, "node", "verify.mjs"), &verdicts); err != nil || len(verdicts) != len(checks) {
		v.t.Fatalf("there are %d verdicts on %d callbacks, %v", len(verdicts), len(checks), err)
	}
	for i, c := range checks {
		for _, library := range []string{"standardwebhooks", "svix"} {
			if got := verdicts[i][library]; got != c.verdict {
				v.t.Errorf("%s: %s says %q, want %q; the headers are %v", c.name, library, got, c.verdict, c.got.Header)
			}
		}
	}
	v.t.Logf("%d callbacks were checked", len(checks))
}
