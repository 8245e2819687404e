package channels

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// request is a request as a service saw it.
type request struct {
	method, path, query string // the path as it was escaped
	header              http.Header
	body                string
}

// service is a server that keeps the requests it gets and answers as it is told.
type service struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	requests []request
	messages []message                // of services that keep them
	buttons  map[string][]askedButton // of messages, by their ids
	lose     func(n int) bool         // whether the connection breaks before an answer is sent; nil: never
}

// startService starts a server whose answers are those of answer, which gets the number of the request, from 1.
func startService(t testing.TB, answer func(w http.ResponseWriter, r request, n int)) *service {
	t.Helper()
	s := &service{t: t}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("reading a request: %v", err)
		}
		got := request{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Clone(), string(body)}
		s.mu.Lock()
		s.requests = append(s.requests, got)
		n := len(s.requests)
		s.mu.Unlock()
		if s.lose != nil && s.lose(n) {
			answer(httptest.NewRecorder(), got, n)
			panic(http.ErrAbortHandler)
		}
		answer(w, got, n)
	}))
	t.Cleanup(s.Close)
	return s
}

// seen returns the requests so far.
func (s *service) seen() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// one returns the only request.
func (s *service) one() request {
	s.t.Helper()
	all := s.seen()
	if len(all) != 1 {
		s.t.Fatalf("got %d requests", len(all))
	}
	return all[0]
}

// message is what a service keeps of a message.
type message struct{ id, chat, thread, text string }

// post keeps a message.
func (s *service) post(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, m)
}

// postButtons puts buttons under a message, or takes them away.
func (s *service) postButtons(id string, buttons []askedButton) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buttons == nil {
		s.buttons = make(map[string][]askedButton)
	}
	s.buttons[id] = buttons
}

// buttonsOf returns the buttons under a message.
func (s *service) buttonsOf(id string) []askedButton {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buttons[id]
}

// edit changes a message, and reports whether there is one.
func (s *service) edit(id, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.messages, func(m message) bool { return m.id == id })
	if i >= 0 {
		s.messages[i].text = text
	}
	return i >= 0
}

// remove drops a message, and reports whether there was one.
func (s *service) remove(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.messages)
	s.messages = slices.DeleteFunc(s.messages, func(m message) bool { return m.id == id })
	return len(s.messages) < n
}

// text is that of a message, "" if there is none.
func (s *service) text(id string) string {
	for _, m := range s.kept() {
		if m.id == id {
			return m.text
		}
	}
	return ""
}

// kept returns the messages, the oldest first.
func (s *service) kept() []message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

// say answers with JSON.
func say(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// loadChannel loads a channel as Caddy does, from what follows its name in a Caddyfile.
func loadChannel(t testing.TB, config string) engine.Channel {
	t.Helper()
	channel, err := tryLoadChannel(t, config)
	if err != nil {
		t.Fatal(err)
	}
	return channel
}

func tryLoadChannel(t testing.TB, config string) (engine.Channel, error) {
	t.Helper()
	d := caddyfile.NewTestDispenser(config)
	d.Next()
	name := d.Val()
	module, err := caddyfile.UnmarshalModule(d, "hooks.channels."+name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(cancel)
	loaded, err := ctx.LoadModuleByID("hooks.channels."+name, caddyconfig.JSON(module, nil))
	if err != nil {
		return nil, err
	}
	return loaded.(engine.Channel), nil
}

const runID = "0197f5a0-1111-7222-8333-444455556666"

func delivery(to, text string) *engine.Delivery {
	return &engine.Delivery{ID: "msg_0197f5a0111172228333444455556666_0", RunID: runID, ChatID: "chät 1",
		RunStatus: "completed", Channel: "team", To: to, Body: text, ContentType: "text/plain; charset=utf-8", Status: engine.Pending, Attempt: 1}
}

// wantJSON checks that two JSON texts say the same.
func wantJSON(t *testing.T, got, want string) {
	t.Helper()
	parse := func(text string) (v any) {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil || dec.More() {
			t.Fatalf("%s is not one JSON value: %v", text, err)
		}
		return v
	}
	if !reflect.DeepEqual(parse(got), parse(want)) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// wantHeaders checks headers, and that there are no others but those of HTTP itself. The value … is any.
func (r request) wantHeaders(t *testing.T, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := r.header.Get(name); got != value && (value != "…" || got == "") {
			t.Errorf("got %s %q, want %q", name, got, value)
		}
	}
	for name := range r.header {
		if _, ok := want[name]; !ok && name != "Content-Length" && name != "Accept-Encoding" {
			t.Errorf("got an unexpected header %s", name)
		}
	}
}

// outcome is what Send returned, for tables.
type outcome struct {
	kind  string // final, later, unreachable or again
	after time.Duration
	words string // in the reason
}

func (want outcome) check(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("was delivered, want %+v", want)
		return
	}
	var final *engine.FinalError
	var later *engine.RetryLaterError
	var unreachable *engine.UnreachableError
	got := outcome{kind: "again"}
	switch {
	case errors.As(err, &final):
		got.kind = "final"
	case errors.As(err, &later):
		got.kind, got.after = "later", later.After
	case errors.As(err, &unreachable):
		got.kind = "unreachable"
	}
	if got.kind != want.kind || got.after != want.after || !strings.Contains(err.Error(), want.words) {
		t.Errorf("got %s after %s: %v\nwant %+v", got.kind, got.after, err, want)
	}
}

// bot is a channel that is tested together with others: how it is configured, a chat on it, what its service answers if
// all is well, and how the text is got out of a request.
type bot struct {
	name   string
	config func(url, token, more string) string
	to     string
	ok     string
	text   func(t *testing.T, r request) string
}

const token = "123456:AAE-secret_token/x+y"

func simpleConfig(name string) func(url, token, more string) string {
	return func(url, token, more string) string {
		return name + " " + token + " {\n url " + url + "\n" + more + "\n}"
	}
}

func serverConfig(name string) func(url, token, more string) string {
	return func(url, token, more string) string { return name + " " + url + " " + token + " {\n" + more + "\n}" }
}

func textMember(names ...string) func(t *testing.T, r request) string {
	return func(t *testing.T, r request) string {
		t.Helper()
		var body map[string]any
		if err := json.Unmarshal([]byte(r.body), &body); err != nil {
			t.Fatalf("the request is no JSON object: %v", err)
		}
		for _, name := range names {
			if text, ok := body[name].(string); ok {
				return text
			}
		}
		t.Fatalf("the request has no text: %s", r.body)
		return ""
	}
}

// bots are the channels that send in parts.
var bots = []bot{
	{"telegram", simpleConfig("telegram"), "-1001234567890", `{"ok":true,"result":{"message_id":7,"date":1,"chat":{"id":-1001234567890,"type":"supergroup"}}}`, textMember("text")},
	{"slack", simpleConfig("slack"), "C0123456789", `{"ok":true,"channel":"C0123456789","ts":"1503435956.000247"}`,
		func(t *testing.T, r request) string {
			return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(textMember("text")(t, r))
		}},
	{"discord", simpleConfig("discord"), "123456789012345678", `{"id":"1300000000000000000","type":0,"content":"x"}`,
		func(t *testing.T, r request) string {
			return strings.ReplaceAll(strings.ReplaceAll(textMember("content")(t, r), `\\`, "\x00"), `\`, "")
		}},
	{"matrix", serverConfig("matrix"), "!room:example.org",
		`{"event_id":"$abc"}`, textMember("body")},
	{"github", simpleConfig("github"), "acme/widgets#7", `{"id":1,"body":"x"}`, quietMember("body")},
	{"gitlab", simpleConfig("gitlab"), "acme/widgets#7", `{"id":1,"body":"x"}`, quietMember("body")},
	{"linear", simpleConfig("linear"), "ENG-123", `{"data":{"commentCreate":{"success":true,"comment":{"id":"` + linearUUID(1) + `"}}}}`, linearText},
	{"mattermost", serverConfig("mattermost"), mattermostOf("c", 1), `{"id":"` + mattermostOf("p", 1) + `"}`, quietMember("message")},
}

// quietMember is textMember for channels that put markup out of action.
func quietMember(name string) func(t *testing.T, r request) string {
	return func(t *testing.T, r request) string {
		t.Helper()
		return strings.ReplaceAll(textMember(name)(t, r), zeroWidthSpace, "")
	}
}

// channels are all of them.
var channels = append(slices.Clone(bots),
	bot{"webhook", func(url, token, more string) string {
		return "webhook " + url + " {\n token " + token + "\n" + more + "\n}"
	}, "anybody", ``, textMember("text")},
	bot{"teams", func(to, token, more string) string {
		return "teams " + to + "/workflows/1?sig=" + url.QueryEscape(token) + " {\n" + more + "\n}"
	}, "anybody", ``, teamsTextOf})

func forEach(t *testing.T, bots []bot, test func(t *testing.T, b bot)) {
	for _, b := range bots {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// longText has about 100,000 characters.
var longText = manyWords(9000)

// longTextFor is long enough to become some messages.
func longTextFor(b bot) string {
	if b.name == "github" || b.name == "gitlab" || b.name == "linear" {
		return manyWords(27_000)
	}
	return longText
}

// manyWords are lines of words, of which no two are alike.
func manyWords(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "wörd%d ", i)
		if i%10 == 9 {
			b.WriteString("&<\n")
		}
	}
	return strings.TrimSpace(b.String())
}

// A part that arrived is not sent again because a later one fails, in whatever way that is.
func TestLongAnswersContinueWhereTheyStopped(t *testing.T) {
	t.Parallel()
	forEach(t, bots, func(t *testing.T, b bot) {
		failures := map[int]int{2: 500, 4: 429, 5: 502}
		var texts []string
		s := startService(t, func(w http.ResponseWriter, r request, n int) {
			switch status := failures[n]; {
			case n == 3:
				panic(http.ErrAbortHandler)
			case status != 0:
				w.Header().Set("Retry-After", "3600")
				say(w, status, `{}`)
			default:
				texts = append(texts, b.text(t, r))
				say(w, 200, b.ok)
			}
		})
		channel := loadChannel(t, b.config(s.URL, token, ""))
		longText := longTextFor(b)
		d := delivery(b.to, longText)
		attempts := 0
		for err := errors.New("not yet"); err != nil; {
			if attempts++; attempts > 10 {
				t.Fatalf("still failing: %v", err)
			}
			sent := d.Sent
			err = channel.Send(t.Context(), d)
			if err != nil && attempts > 1 && d.Sent != sent {
				t.Errorf("attempt %d failed, but sent %d parts", attempts, d.Sent-sent)
			}
		}
		if len(failures) != 3 || attempts != 5 || d.Sent != len(texts) || len(texts) < 3 {
			t.Errorf("it took %d attempts and %d parts; %d are noted", attempts, len(texts), d.Sent)
		}
		if got, want := strings.Fields(strings.Join(texts, "\n")), strings.Fields(longText); !slices.Equal(got, want) {
			t.Errorf("%d words arrived, %d were sent", len(got), len(want))
		}
		if err := channel.Send(t.Context(), d); err != nil {
			t.Errorf("what has arrived fails: %v", err)
		}
		if len(texts) != d.Sent {
			t.Error("what has arrived is sent again")
		}
	})
}

// Services want a pause every few messages. It is not for the attempt to sit it out, which holds a place that others need.
func TestPauseBetweenPartsIsLeftToTheEngine(t *testing.T) {
	t.Parallel()
	forEach(t, bots, func(t *testing.T, b bot) {
		s := startService(t, func(w http.ResponseWriter, _ request, n int) {
			if n == 3 {
				w.Header().Set("Retry-After", "1")
				say(w, 429, `{}`)
				return
			}
			say(w, 200, b.ok)
		})
		channel := loadChannel(t, b.config(s.URL, token, ""))
		d := delivery(b.to, longTextFor(b))
		outcome{"later", time.Second, "pause"}.check(t, channel.Send(t.Context(), d))
		if d.Sent != 2 || len(s.seen()) != 3 {
			t.Fatalf("%d parts arrived with %d requests", d.Sent, len(s.seen()))
		}
		if err := channel.Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if got := s.seen(); len(got) != d.Sent+1 || got[2].body != got[3].body || got[2].path != got[3].path {
			t.Errorf("after the pause, another part is sent; %d arrived with %d requests", d.Sent, len(got))
		}
	})
}

func TestSomePausesAreForAllChats(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		bot        bot
		to         string
		body       string
		everywhere bool
	}{
		{bots[0], "42", `{"ok":false,"error_code":429,"parameters":{"retry_after":1},"global":true}`, false},
		{bots[1], "C0123456789", `{"ok":false,"error":"ratelimited","global":true}`, false},
		{bots[2], "123456789012345678", `{"retry_after":0.5,"global":true}`, true},
		{bots[2], "123456789012345678", `{"retry_after":0.5,"global":false}`, false},
		{bots[2], "123456789012345678", `{"retry_after":0.5,"global":"true"}`, false},
		{bots[2], "123456789012345678", `{"retry_after":0.5}`, false},
		{bots[3], "!room:example.org", `{"errcode":"M_LIMIT_EXCEEDED","retry_after_ms":500}`, true},
		{bots[3], "#room:example.org", `{"errcode":"M_LIMIT_EXCEEDED","retry_after_ms":500}`, true},
		{bots[3], "!room:example.org", `{"errcode":"M_UNKNOWN","global":true}`, false},
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
			w.Header().Set("Retry-After", "1")
			say(w, 429, tc.body)
		})
		err := loadChannel(t, tc.bot.config(s.URL, token, "")).Send(t.Context(), delivery(tc.to, "x"))
		var later *engine.RetryLaterError
		if !errors.As(err, &later) || later.After != time.Second || later.WholeChannel != tc.everywhere {
			t.Errorf("%s %s: got %+v", tc.bot.name, tc.body, err)
		}
	}
}

func TestBlankAnswersAreRefusedForGood(t *testing.T) {
	t.Parallel()
	forEach(t, bots, func(t *testing.T, b bot) {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) { say(w, 200, b.ok) })
		for _, text := range []string{"", " \n\t", "\u200b\u2800", "\x00\x07"} {
			outcome{kind: "final", words: "blank"}.check(t, loadChannel(t, b.config(s.URL, token, "")).Send(t.Context(), delivery(b.to, text)))
		}
		if len(s.seen()) > 0 {
			t.Error("something was sent")
		}
	})
}

func TestOverlongAnswersAreFiftyMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	t.Parallel()
	forEach(t, bots, func(t *testing.T, b bot) {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) { say(w, 200, b.ok) })
		d := delivery(b.to, strings.Repeat("😀& ", 900_000))
		if err := loadChannel(t, b.config(s.URL, token, "")).Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		all := s.seen()
		if last := b.text(t, all[len(all)-1]); len(all) != 50 || d.Sent != 50 || !strings.Contains(last, "characters are left out") || !strings.Contains(last, runID) {
			t.Errorf("got %d messages, the last ends with %q", len(all), last[max(0, len(last)-200):])
		}
	})
}

// What a service answers with when all is well may repeat the message, and is then longer than what is kept of it.
func TestLongAnswersOfServicesAreUnderstood(t *testing.T) {
	t.Parallel()
	forEach(t, bots, func(t *testing.T, b bot) {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
			say(w, 200, `{"message":{"text":"`+strings.Repeat(`\u00e4`, 20_000)+`"},`+b.ok[1:])
		})
		if err := loadChannel(t, b.config(s.URL, token, "")).Send(t.Context(), delivery(b.to, "x")); err != nil {
			t.Error(err)
		}
	})
}

func TestHostileAnswersAreNoDeliveries(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of cases, one after the other")
	}
	t.Parallel()
	huge := strings.Repeat("x", 1<<20)
	for name, answer := range map[string]func(w http.ResponseWriter, b bot){
		"nothing":              func(http.ResponseWriter, bot) {},
		"no content":           func(w http.ResponseWriter, _ bot) { w.WriteHeader(204) },
		"a page":               func(w http.ResponseWriter, _ bot) { _, _ = io.WriteString(w, "<html>Please log in</html>") },
		"a number":             func(w http.ResponseWriter, _ bot) { say(w, 200, `1`) },
		"null":                 func(w http.ResponseWriter, _ bot) { say(w, 200, `null`) },
		"a list":               func(w http.ResponseWriter, b bot) { say(w, 200, `[`+b.ok+`]`) },
		"an empty object":      func(w http.ResponseWriter, _ bot) { say(w, 200, `{}`) },
		"wrong types":          func(w http.ResponseWriter, _ bot) { say(w, 200, `{"ok":"true","id":7,"event_id":{},"error":[]}`) },
		"more wrong types":     func(w http.ResponseWriter, _ bot) { say(w, 200, `{"ok":1,"id":null,"event_id":7,"error_code":"400"}`) },
		"no, and nothing else": func(w http.ResponseWriter, _ bot) { say(w, 200, `{"ok":false}`) },
		"something after it":   func(w http.ResponseWriter, b bot) { say(w, 200, b.ok+`{}`) },
		"half of it":           func(w http.ResponseWriter, b bot) { say(w, 200, b.ok[:len(b.ok)-1]) },
		"a broken body": func(w http.ResponseWriter, b bot) {
			w.Header().Set("Content-Length", "10000")
			say(w, 200, b.ok[:len(b.ok)-1])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"deep":    func(w http.ResponseWriter, _ bot) { say(w, 200, strings.Repeat(`{"ok":`, 100_000)) },
		"huge":    func(w http.ResponseWriter, b bot) { say(w, 200, `{"x":"`+huge+`",`+b.ok[1:]) },
		"not yet": func(w http.ResponseWriter, _ bot) { w.WriteHeader(202) },
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, bots, func(t *testing.T, b bot) {
				s := startService(t, func(w http.ResponseWriter, _ request, _ int) { answer(w, b) })
				d := delivery(b.to, "x")
				outcome{kind: "again", words: "answer"}.check(t, loadChannel(t, b.config(s.URL, token, "")).Send(t.Context(), d))
				if d.Sent != 0 || len(d.LastAnswer) > 4096 || d.LastStatus/100 != 2 {
					t.Errorf("noted: %d parts, status %d, %d bytes of the answer", d.Sent, d.LastStatus, len(d.LastAnswer))
				}
			})
		})
	}
}

func TestStatusesOfServices(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of cases, one after the other")
	}
	t.Parallel()
	for _, tc := range []struct {
		status int
		want   outcome
	}{
		{301, outcome{"final", 0, "redirects are not followed"}}, {307, outcome{"final", 0, "redirects are not followed"}},
		{400, outcome{"final", 0, "answered 400"}}, {401, outcome{"final", 0, "answered 401"}}, {403, outcome{"final", 0, "answered 403"}},
		{404, outcome{"final", 0, "answered 404"}}, {410, outcome{"final", 0, "answered 410"}},
		{408, outcome{"later", 7 * time.Second, "answered 408"}}, {425, outcome{"later", 7 * time.Second, "answered 425"}},
		{429, outcome{"later", 7 * time.Second, "answered 429"}},
		{500, outcome{"later", 7 * time.Second, "answered 500"}}, {503, outcome{"later", 7 * time.Second, "answered 503"}},
	} {
		t.Run(fmt.Sprint(tc.status), func(t *testing.T) {
			forEach(t, channels, func(t *testing.T, b bot) {
				for _, body := range []string{"", "<html>", `{}`, `{"ok":[],"error":7,"description":{},"parameters":"x","errcode":null,"code":"x","retry_after":"soon","retry_after_ms":[]}`} {
					s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
						w.Header().Set("Retry-After", "7")
						w.Header().Set("Location", "/elsewhere")
						say(w, tc.status, body)
					})
					d := delivery(b.to, "x")
					want := tc.want
					if b.name == "github" && tc.status == 403 {
						want.kind, want.after = "later", 7*time.Second // with a Retry-After it is a limit
					}
					want.check(t, loadChannel(t, b.config(s.URL, token, "")).Send(t.Context(), d))
					if d.LastStatus != tc.status || d.LastAnswer != body || len(s.seen()) != 1 {
						t.Errorf("noted: status %d, answer %q, after %d requests", d.LastStatus, d.LastAnswer, len(s.seen()))
					}
				}
			})
		})
	}
}

func TestSlowServicesAreGivenUp(t *testing.T) {
	t.Parallel()
	forEach(t, channels, func(t *testing.T, b bot) {
		release := make(chan struct{})
		s := startService(t, func(http.ResponseWriter, request, int) { <-release })
		defer close(release)
		d := delivery(b.to, "x")
		outcome{kind: "unreachable", words: "no answer within 50ms"}.check(t, loadChannel(t, b.config(s.URL, token, "timeout 50ms")).Send(t.Context(), d))
		if d.LastStatus != 0 || d.LastAnswer != "" {
			t.Errorf("noted: status %d, answer %q", d.LastStatus, d.LastAnswer)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		outcome{kind: "again", words: "stopped"}.check(t, loadChannel(t, b.config(s.URL, token, "")).Send(ctx, d))
	})
}

func TestSlowAnswersAreGivenUp(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var all sync.WaitGroup
	for _, b := range bots {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
			_, _ = io.WriteString(w, b.ok[:10])
			_ = http.NewResponseController(w).Flush()
			<-release
		})
		// Long enough for the first half of an answer on a busy machine.
		channel := loadChannel(t, b.config(s.URL, token, "timeout 5s"))
		all.Go(func() { // all at once, since each takes its time
			outcome{kind: "again", words: "the answer had the status 200"}.check(t, channel.Send(t.Context(), delivery(b.to, "x")))
		})
	}
	all.Wait()
	close(release)
}

func TestServicesThatAreNotThere(t *testing.T) {
	// Not parallel: another test could listen on the port that this one leaves.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	forEach(t, channels, func(t *testing.T, b bot) {
		err := loadChannel(t, b.config("http://"+l.Addr().String(), token, "")).Send(t.Context(), delivery(b.to, "x"))
		outcome{kind: "unreachable", words: "refused"}.check(t, err)
	})
}

func TestServiceThatSwitchesProtocols(t *testing.T) {
	t.Parallel()
	forEach(t, channels, func(t *testing.T, b bot) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn) // until the other side closes
			conn.Close()
		}()
		outcome{kind: "final", words: "101"}.check(t, loadChannel(t, b.config("http://"+l.Addr().String(), token, "")).Send(t.Context(), delivery(b.to, "x")))
	})
}

// Whoever answers, a proxy, a page for errors, may repeat the request, in some form.
func TestSecretsAreNeverShown(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of cases, one after the other")
	}
	t.Parallel()
	inJSON := ""
	for _, r := range token {
		inJSON += fmt.Sprintf(`\u%04X`, r)
	}
	forms := map[string]string{
		"as it is":      token,
		"in a path":     url.PathEscape(token),
		"in a query":    url.QueryEscape(token),
		"in small hex":  strings.NewReplacer("%3A", "%3a", "%2F", "%2f", "%2B", "%2b").Replace(url.QueryEscape(token)),
		"in JSON":       strings.ReplaceAll(token, "/", `\/`),
		"all in JSON":   inJSON,
		"in HTML":       strings.NewReplacer("+", "&#43;", "/", "&#x2F;", ":", "&colon;").Replace(token),
		"several times": token + token + " " + token,
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			dots := "••••"
			if name == "several times" {
				dots = "•••••••• ••••"
			}
			forEach(t, channels, func(t *testing.T, b bot) {
				for _, status := range []int{200, 302, 401, 429, 500} {
					if b.ok == "" && status == 200 {
						continue // a yes, whatever else it says
					}
					for _, before := range []int{0, 4090} { // at the beginning, and where the answer is cut off
						start := strings.Repeat(".", before) + "/bot"
						s := startService(t, func(w http.ResponseWriter, _ request, _ int) { say(w, status, start+form+"/x") })
						d := delivery(b.to, "x")
						err := loadChannel(t, b.config(s.URL, token, "")).Send(t.Context(), d)
						if err == nil {
							t.Fatal("was delivered")
						}
						want := start + dots + "/x"
						if want = want[:min(len(want), 4096)]; d.LastAnswer != want {
							t.Errorf("kept of the answer: %q", d.LastAnswer[max(0, len(d.LastAnswer)-100):])
						}
						if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "127.0.0.1") {
							t.Errorf("status %d: the error is %v", status, err)
						}
					}
				}
			})
		})
	}
}

func TestSecretsInFieldsOfAnswersAreNeverShown(t *testing.T) {
	t.Parallel()
	const token = "SECRET_TOKEN_0"
	for _, field := range []string{"error", "errcode", "description", "code", "message"} {
		for _, value := range []string{token, strings.ToLower(token)} {
			forEach(t, bots, func(t *testing.T, b bot) {
				s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
					say(w, 400, `{"ok":false,"`+field+`":"`+value+`"}`)
				})
				d := delivery(b.to, "x")
				err := loadChannel(t, b.config(s.URL, value, "")).Send(t.Context(), d)
				if err == nil || strings.Contains(err.Error(), value) || strings.Contains(d.LastAnswer, value) {
					t.Errorf("shown are %v and %s", err, d.LastAnswer)
				}
			})
		}
	}
}

func TestPausesThatMakeNoSenseAreAbsent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"1": time.Second, "64.57": 65 * time.Second, "0.001": time.Second, "3600": time.Hour, "1e2": 100 * time.Second,
		"86400": 24 * time.Hour, "86401": 24 * time.Hour, "2000000000": 24 * time.Hour,
		"0": 0, "-1": 0, "-0.5": 0, "1e308": 0, "1e309": 0, "1e-400": 0, "99999999999999999999": 0, `"5"`: 0, "null": 0, "true": 0, "[5]": 0, "{}": 0,
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
			say(w, 429, `{"message":"You are being rate limited.","global":false,"retry_after":`+text+`}`)
		})
		kind := "later"
		if want == 0 {
			kind = "again"
		}
		outcome{kind: kind, after: want, words: "pause"}.check(t, loadChannel(t, simpleConfig("discord")(s.URL, token, "")).Send(t.Context(), delivery("123456789012345678", "x")))
	}
	if got := readPause(json.Number("1500"), time.Millisecond); got != 2*time.Second {
		t.Errorf("1500 ms are %s", got)
	}
	if got := readPause(json.Number("NaN"), time.Second); got != 0 {
		t.Errorf("no number is %s", got)
	}
	if got := readPause(json.Number("86400001"), time.Millisecond); got != 24*time.Hour {
		t.Errorf("a day and a bit are %s", got)
	}
}

func TestChatsThatAreNoneAreNotSentTo(t *testing.T) {
	t.Parallel()
	forEach(t, bots, func(t *testing.T, b bot) {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) { say(w, 200, b.ok) })
		channel := loadChannel(t, b.config(s.URL, token, ""))
		for _, to := range []string{"", " ", "../x", "a/b", "x?y", b.to + "\n", b.to + "/../x", "\x00", "\xff", strings.Repeat("1", 1000)} {
			if channel.ValidTo(to) == nil {
				t.Errorf("%q passes for a chat", to)
			}
			outcome{kind: "final"}.check(t, channel.Send(t.Context(), delivery(to, "x")))
		}
		if n := len(s.seen()); n > 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
}

func TestChannelsFromACaddyfile(t *testing.T) {
	t.Setenv("CHANNEL_TOKEN", token)
	t.Setenv("CHANNEL_BLANK", " ")
	t.Setenv("CHANNEL_LINES", "two\nlines")
	t.Setenv("CHANNEL_URL", "http://127.0.0.1:1")
	const whsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for _, config := range []string{
		"telegram x", "slack x", "discord x", "matrix http://x y", "webhook https://x/y?z=1",
		"telegram {env.CHANNEL_TOKEN}", "slack x {\n}", "slack x {\n url http://127.0.0.1:1/api/\n timeout 1m\n}",
		"discord x {\n url {env.CHANNEL_URL}\n}", "matrix {env.CHANNEL_URL} {env.CHANNEL_TOKEN}",
		"webhook {env.CHANNEL_URL} {\n token {env.CHANNEL_TOKEN}\n secret " + whsec + " " + whsec + "\n timeout 1s\n}",
	} {
		if _, err := tryLoadChannel(t, config); err != nil {
			t.Errorf("%s: %v", config, err)
		}
	}
	for config, want := range map[string]string{
		"telegram":                       "channel telegram takes one secret",
		"telegram hush hush2":            "channel telegram takes one secret",
		`slack ""`:                       "must not be blank",
		`slack " "`:                      "must not be blank",
		"discord hush {\n token hush\n}": "channel discord takes url, timeout and allow_to",
		"discord hush {\n url http://x\n url y\n}": "url is set already",
		"slack hush {\n url\n}":                    "url takes an argument, and there is none",
		"slack hush {\n url http://a b\n}":         "url takes one argument",
		"slack hush {\n url slack.com\n}":          "must start with http",
		"slack hush {\n url ftp://x\n}":            "must start with http",
		"slack hush {\n url http://\n}":            "name a host",
		"slack hush {\n url http://:80\n}":         "name a host",
		"slack hush {\n url http://%zz\n}":         "must start with http",
		"slack hush {\n url http://u:hush@x\n}":    "user name or password",
		"slack hush {\n url http://x?a=hush\n}":    "query",
		"slack hush {\n timeout\n}":                "timeout takes an argument, and there is none",
		"slack hush {\n timeout 0\n}":              "'0' is not a duration",
		"slack hush {\n timeout -1s\n}":            "'-1s' is not a duration",
		"slack hush {\n timeout soon\n}":           "'soon' is not a duration",
		"matrix":                                   "takes the URL of a homeserver and one secret",
		"matrix http://x":                          "takes the URL of a homeserver and one secret",
		"matrix http://x hush hush":                "takes the URL of a homeserver and one secret",
		`matrix http://x ""`:                       "must not be blank",
		"matrix x hush":                            "must start with http",
		"matrix http://x hush {\n url http://y\n}": "channel matrix takes timeout",
		"gitlab":                               "takes one secret",
		"linear hush hush":                     "takes one secret",
		"mattermost http://x":                  "takes the URL of a server and one secret, the token of a bot",
		"mattermost x hush":                    "must start with http",
		"teams":                                "channel teams takes one URL",
		"teams http://x?hush http://y":         "channel teams takes one URL",
		"teams x":                              "must start with http",
		"teams http://x {\n url http://y\n}":   "channel teams takes timeout and allow_to",
		"webhook":                              "takes one URL",
		"webhook http://x?hush http://y":       "takes one URL",
		"webhook x":                            "must start with http",
		"webhook http://u:hush@x":              "user name or password",
		"webhook http://x {\n url http://y\n}": "channel webhook takes token, secret, timeout and allow_to",
		"webhook http://x {\n allow_to {env.CHANNEL_NOT_SET}\n}":   "channel webhook: allow_to '{env.CHANNEL_NOT_SET}' is refused",
		"webhook http://x {\n token\n}":                            "token takes one secret",
		"webhook http://x {\n token hush hush\n}":                  "token takes one secret",
		"webhook http://x {\n token a\n token b\n}":                "token is set already",
		"webhook http://x {\n secret\n}":                           "secret takes an argument, and there is none",
		"webhook http://x {\n secret hush\n}":                      "secret 1 does not begin with whsec_",
		"webhook http://x {\n secret " + whsec + " whsec_!hush\n}": "secret 2 has something after whsec_ that is not base64",
		"telegram {env.CHANNEL_NOT_SET}":                           "channel telegram: the token names the environment variable CHANNEL_NOT_SET, which is not set",
		"telegram {file./not/there}":                               "channel telegram: the token names the file /not/there, which cannot be read: no such file",
		"telegram {env.CHANNEL_BLANK}":                             "is empty",
		"slack {env.CHANNEL_LINES}":                                "cannot be sent",
		"slack hush {\n url {env.CHANNEL_NOT_SET}x\n}":             "must start with http",
		"webhook http://x {\n token {env.CHANNEL_NOT_SET}\n}":      "channel webhook: the token names the environment variable CHANNEL_NOT_SET, which is not set",
		"webhook http://x {\n secret {env.CHANNEL_NOT_SET}\n}":     "channel webhook: a secret names the environment variable CHANNEL_NOT_SET, which is not set",
		"webhook http://x {\n secret {env.CHANNEL_TOKEN}\n}":       "secret 1 does not begin with whsec_",
	} {
		_, err := tryLoadChannel(t, config)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", config, err, want)
		} else if strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "lines") {
			t.Errorf("%q: the error %v shows a secret", config, err)
		}
	}
}

func TestChannelsFromJSON(t *testing.T) {
	t.Parallel()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	for config, want := range map[string]string{
		`telegram {"token":"x"}`:                               "",
		`slack {"token":"x","url":"http://x/","timeout":"5s"}`: "",
		`matrix {"token":"x","url":"http://x"}`:                "",
		`webhook {"url":"http://x","secret":[]}`:               "",
		`telegram {}`:                                          "token",
		`slack {}`:                                             "token",
		`discord {}`:                                           "token",
		`matrix {"url":"http://x"}`:                            "token",
		`matrix {"token":"x"}`:                                 "URL",
		`webhook {}`:                                           "URL",
		`gitlab {}`:                                            "token",
		`linear {}`:                                            "token",
		`mattermost {"token":"x"}`:                             "URL",
		`mattermost {"url":"http://x"}`:                        "token",
		`teams {}`:                                             "URL",
		`github {}`:                                            "token",
		`github {"token":"x","app":{"id":"1","key_file":"x"}}`: "both",
		`slack {"token":"x","timeout":-1}`:                     "timeout",
		`slack {"token":"x","url":"x"}`:                        "URL",
		`slack {"token":"x","channel_url":"x"}`:                "channel_url",
	} {
		name, raw, _ := strings.Cut(config, " ")
		_, err := ctx.LoadModuleByID("hooks.channels."+name, json.RawMessage(raw))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", config, err)
		}
	}
	for _, half := range []caddy.CleanerUpper{new(Telegram), new(Slack), new(Discord), new(Matrix), new(Webhook), new(GitHub), new(GitLab), new(Linear), new(Mattermost), new(Teams)} {
		if err := half.Cleanup(); err != nil {
			t.Error(err)
		}
	}
}

// A connection that is being closed by the other side must not make a message go out twice behind our back.
func TestMessagesAreSentOnce(t *testing.T) {
	t.Parallel()
	forEach(t, channels, func(t *testing.T, b bot) {
		s := startService(t, func(w http.ResponseWriter, _ request, n int) {
			if n > 1 {
				panic(http.ErrAbortHandler)
			}
			say(w, 200, b.ok)
		})
		channel := loadChannel(t, b.config(s.URL, token, ""))
		if err := channel.Send(t.Context(), delivery(b.to, "x")); err != nil {
			t.Fatal(err)
		}
		outcome{kind: "again"}.check(t, channel.Send(t.Context(), delivery(b.to, "x")))
		if n := len(s.seen()); n != 2 {
			t.Errorf("got %d requests", n)
		}
	})
}

// Loopback is never proxied, so the environment cannot be put to the test with a listener.
func TestChannelsAskTheEnvironmentForAProxy(t *testing.T) {
	t.Parallel()
	var a API
	if err := a.provision("test", "https://example.com", checkURL, checkChatName); err != nil {
		t.Fatal(err)
	}
	if a.transport.Proxy == nil || reflect.ValueOf(a.transport.Proxy).Pointer() != reflect.ValueOf(http.ProxyFromEnvironment).Pointer() {
		t.Error("the transport does not ask for the proxy of the environment")
	}
}
