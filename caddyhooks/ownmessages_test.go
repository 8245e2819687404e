package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// echoingService is a fake of Slack and of GitHub that sends every message that is posted as an event, as they do.
type echoingService struct {
	*httptest.Server
	unready atomic.Bool // it does not tell who we are
	hangs   atomic.Bool // nor that it does not
	posted  atomic.Int64
	asked   chan struct{}           // somebody asked who we are
	echoed  chan hookstest.Response // the answers to events of our own messages
	deliver func(kind, body string) hookstest.Response
}

func startEchoingService(t *testing.T) *echoingService {
	e := &echoingService{asked: make(chan struct{}, 100), echoed: make(chan hookstest.Response, 100)}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *echoingService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	isQuestion := strings.HasSuffix(r.URL.Path, "/auth.test") || strings.HasSuffix(r.URL.Path, "/user")
	if isQuestion {
		select {
		case e.asked <- struct{}{}:
		default:
		}
		switch {
		case e.hangs.Load():
			<-r.Context().Done()
			return
		case e.unready.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/auth.test"):
		_, _ = io.WriteString(w, `{"ok":true,"user_id":"U999","bot_id":"B999","user":"bot"}`)
	case strings.HasSuffix(r.URL.Path, "/user"):
		_, _ = io.WriteString(w, `{"login":"our-bot","id":7}`)
	case strings.HasSuffix(r.URL.Path, "/chat.postMessage"):
		e.posted.Add(1)
		var message struct{ Channel, Text string }
		_ = json.Unmarshal(body, &message)
		_, _ = io.WriteString(w, `{"ok":true,"channel":"`+message.Channel+`","ts":"1700000000.000200","message":{"text":"x"}}`)
		go func() { e.echoed <- e.deliver("slack", slackEvent(e.posted.Load(), "U999", "B999", message.Text)) }()
	case strings.HasSuffix(r.URL.Path, "/comments"):
		e.posted.Add(1)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":5,"body":"x"}`)
		go func() { e.echoed <- e.deliver("github", commentEvent("our-bot", "User")) }()
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func slackEvent(number int64, user, bot, text string) string {
	if bot != "" {
		bot = `"bot_id":"` + bot + `",`
	}
	return fmt.Sprintf(`{"type":"event_callback","event_id":"Ev%s%d","event":{"type":"message",%s"user":%q,"channel":"C0123456789","ts":"1700000000.0001","text":%s}}`,
		user, number, bot, user, quoted(text))
}

func commentEvent(login, kind string) string {
	return fmt.Sprintf(`{"action":"created","issue":{"number":7},"comment":{"id":5,"body":"hello","user":{"login":%q,"type":%q}},
		"repository":{"full_name":"acme/widgets"},"sender":{"login":%[1]q,"type":%q}}`, login, kind)
}

// site has a bot on each service.
func (e *echoingService) site(t *testing.T) string {
	t.Setenv("CHAT_TOKEN", "xoxb-token")
	return "hooks {\n enabled\n token " + hookstest.Token + "\n runner echo\n" + fmt.Sprintf(`
	channel team slack {env.CHAT_TOKEN} {
		url %[1]s
		allow_to C0123456789
	}
	channel code github {env.CHAT_TOKEN} {
		url %[1]s
		allow_to acme/*
	}
	hook slack {
		action agent
		auth slack secret
		template "{event.text}"
		deliver team "{event.channel}"
	}
	hook github {
		action agent
		auth github secret
		template "{comment.body | default 'a push'}"
		deliver code "{repository.full_name}#{issue.number | default '1'}"
	}
}`, e.URL)
}

// sendTo has events sent to a site.
func (e *echoingService) sendTo(s *hookstest.Server) {
	e.deliver = func(kind, body string) hookstest.Response {
		if kind == "github" {
			return s.Post("/api/hooks/github", body, "X-Hub-Signature-256", "sha256="+signature("secret", body))
		}
		return s.Post("/api/hooks/slack", body, slackHeaders("secret", body, time.Now())...)
	}
}

func TestAnswersThatComeBackAsEventsAreIgnored(t *testing.T) {
	e := startEchoingService(t)
	s := hookstest.NewServer(t)
	e.sendTo(s)
	s.Load(e.site(t))
	for range 2 {
		<-e.asked // one question for each channel
	}
	for i := range 3 {
		for kind, event := range map[string]string{"slack": slackEvent(int64(i), "U1", "", "hello"), "github": commentEvent("ann", "User")} {
			hookstest.Eventually(t, "our own messages are known", func() bool {
				return e.deliver(kind, map[string]string{"slack": slackEvent(-1, "U999", "B999", "x"), "github": commentEvent("our-bot", "Bot")}[kind]).Status == 200
			})
			before := e.posted.Load()
			if asked := e.deliver(kind, event); asked.Status/100 != 2 || !strings.Contains(asked.Body, "runId") {
				t.Fatalf("%s: got %d %s", kind, asked.Status, asked.Body)
			}
			wantIgnored(t, <-e.echoed)
			if sent := e.posted.Load() - before; sent != 1 {
				t.Errorf("%s: %d messages are posted for one question", kind, sent)
			}
		}
	}
	if runs, _ := s.Listed(""); len(runs) != 6 {
		t.Errorf("there are %d runs", len(runs))
	}
	refused := s.AdminRequest("GET", "/hooks/refused", "").Body
	for _, want := range []string{"it is a message of channel team", "it is a message of channel code"} {
		if !strings.Contains(refused, want) {
			t.Errorf("%s is not in %s", want, refused)
		}
	}
	// Other bots are no business of ours, and whoever owns the token may do other things.
	for kind, event := range map[string]string{"slack": slackEvent(9, "U5", "B5", "x"),
		"github": `{"ref":"refs/heads/main","repository":{"full_name":"acme/widgets"},"sender":{"login":"our-bot","type":"User"}}`} {
		if resp := e.deliver(kind, event); !strings.Contains(resp.Body, "runId") {
			t.Errorf("%s: got %d %s", kind, resp.Status, resp.Body)
		}
		wantIgnored(t, <-e.echoed)
	}
	e.AssertIdle(t, s, 8)
}

// AssertIdle checks that nothing is under way that could become another run.
func (e *echoingService) AssertIdle(t *testing.T, s *hookstest.Server, runs int) {
	t.Helper()
	hookstest.Eventually(t, "no answer is under way", func() bool { return len(s.Deliveries("status=pending")) == 0 })
	if got, _ := s.Listed(""); len(got) != runs || len(e.echoed) > 0 || e.posted.Load() != int64(runs) {
		t.Errorf("%d runs, %d messages and %d echoes", len(got), e.posted.Load(), len(e.echoed))
	}
}

// Until it is known who our bot is, its messages are put off, and those of people are not.
func TestEventsOfBotsWaitUntilOurOwnAreKnown(t *testing.T) {
	e := startEchoingService(t)
	e.unready.Store(true)
	s := hookstest.NewServer(t)
	e.sendTo(s)
	s.Load(e.site(t))
	<-e.asked
	for kind, event := range map[string]string{"slack": slackEvent(1, "U5", "B5", "x"), "github": commentEvent("other[bot]", "Bot")} {
		resp := e.deliver(kind, event)
		resp.WantError(t, 503, "It cannot be told yet whether this is a message of our own")
		if resp.Header.Get("Retry-After") != "5" {
			t.Errorf("%s: Retry-After is %q", kind, resp.Header.Get("Retry-After"))
		}
	}
	if resp := e.deliver("slack", slackEvent(2, "U1", "", "hello")); resp.Status != 200 || !strings.Contains(resp.Body, "runId") {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	(<-e.echoed).WantError(t, 503)
	e.unready.Store(false)
	hookstest.Eventually(t, "its own message is ignored", func() bool { return e.deliver("slack", slackEvent(3, "U999", "B999", "x")).Status == 200 })
	hookstest.Eventually(t, "other bots are heard", func() bool { return e.deliver("github", commentEvent("other[bot]", "Bot")).Status == 202 })
	wantIgnored(t, <-e.echoed)
}

// A service that does not answer holds up neither requests nor a reload.
func TestAServiceThatHangsDoesNotHoldUpAReload(t *testing.T) {
	e := startEchoingService(t)
	e.hangs.Store(true)
	s := hookstest.NewServer(t)
	e.sendTo(s)
	s.Load(e.site(t))
	<-e.asked
	e.deliver("slack", slackEvent(1, "U999", "B999", "x")).WantError(t, 503)
	s.Reload(e.site(t))
	e.hangs.Store(false)
	s.Reload(e.site(t))
	hookstest.Eventually(t, "its own message is ignored", func() bool { return e.deliver("slack", slackEvent(2, "U999", "B999", "x")).Status == 200 })
	// What is known stays known.
	e.hangs.Store(true)
	s.Reload(e.site(t))
	wantIgnored(t, e.deliver("slack", slackEvent(3, "U999", "B999", "x")))
	// But not that of another bot.
	s.Reload(strings.Replace(e.site(t), "allow_to C0123456789", "allow_to C0123456789 C1", 1))
	e.deliver("slack", slackEvent(4, "U999", "B999", "x")).WantError(t, 503)
}
