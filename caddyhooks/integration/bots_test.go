package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// botService is a service in which people ask, and in which a bot answers. It keeps threads, and sends an event of every message to the
// hook, of those of the bot, too, as such services do.
type botService struct {
	t      *testing.T
	signer *signer
	name   string
	secret string
	hook   string // where events go to
	kind   botKind
	works  bool // its recipe says that the bot works

	load func() // loads the recipe

	mu       sync.Mutex
	isGone   bool // it does not know the thread any more
	messages []*botMessage
	events   []string // the answers to events of the bot's messages
	sending  int      // events that are not answered yet
}

// botMessage is a message in a thread.
type botMessage struct {
	number  int
	thread  string
	ofBot   bool
	removed bool
	texts   []string // the last one is shown; before it was edited it was another
}

// botKind is what differs between services.
type botKind struct {
	secret  string                               // of its signatures, if it is not the one of the other recipes
	channel string                               // in the Caddyfile, with the URL of the service
	thread  string                               // in which somebody asks
	headers []string                             // of events
	event   func(m *botMessage) (body string)    // "" if there is none for such a message
	api     func(s *botService) http.HandlerFunc // what the bot calls
}

// say adds a message, and sends its event.
func (s *botService) say(thread, text string, ofBot bool) *botMessage {
	s.mu.Lock()
	m := &botMessage{number: len(s.messages) + 1, thread: thread, ofBot: ofBot, texts: []string{text}}
	s.messages = append(s.messages, m)
	s.mu.Unlock()
	s.sendEvent(m)
	return m
}

// sendEvent sends the event of a message as it is now.
func (s *botService) sendEvent(m *botMessage) {
	s.mu.Lock()
	body := s.kind.event(m)
	if body != "" {
		s.sending++
	}
	s.mu.Unlock()
	if body == "" {
		return
	}
	go func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sending--
		}()
		q := question{Sender: s.name, Secret: s.secret, URL: s.hook, Body: body, Time: time.Now().Unix(), ID: uuid.NewString()}
		resp, err := s.signer.sign(s.t, q).send(s.kind.headers...)
		if err != nil || resp.Status < 200 || resp.Status > 299 {
			s.t.Errorf("an event is answered %d %s %v: %s", resp.Status, resp.Body, err, body)
			return
		}
		ignored := strings.Contains(resp.Body, "ignored") || resp.Status == http.StatusNoContent
		if !m.ofBot && ignored {
			s.t.Errorf("what somebody asks is ignored: %d %s", resp.Status, resp.Body)
		}
		if m.ofBot {
			s.mu.Lock()
			s.events = append(s.events, resp.Body)
			s.mu.Unlock()
		}
	}()
}

// settle waits until all events are answered.
func (s *botService) settle() {
	hookstest.Eventually(s.t, "all events are answered", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.sending == 0
	})
}

// find returns a message by its number.
func (s *botService) find(number string) *botMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(s.messages) || s.messages[n-1].removed {
		return nil
	}
	return s.messages[n-1]
}

// edit replaces the text of a message, and sends the event of that.
func (s *botService) edit(m *botMessage, text string) {
	s.mu.Lock()
	m.texts = append(m.texts, text)
	s.mu.Unlock()
	s.sendEvent(m)
}

func (s *botService) remove(m *botMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.removed = true
}

func (s *botService) hasLostItsThread() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isGone
}

// shown is what is to be seen in a thread: "bot: hello".
func (s *botService) shown(thread string) (lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		if m.thread == thread && !m.removed {
			lines = append(lines, map[bool]string{true: "bot", false: "ann"}[m.ofBot]+": "+m.texts[len(m.texts)-1])
		}
	}
	return lines
}

// readJSON reads the body of a call of the bot.
func (s *botService) readJSON(r *http.Request, into any) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		s.t.Errorf("%s %s has no JSON: %v", r.Method, r.URL.Path, err)
	}
}

func writeAnswer(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

var (
	channelOfRecipe  = regexp.MustCompile(`(?s)\t\tchannel (\S+) log( \{.*?\n\t\t\})?\n`)
	progressOfRecipe = regexp.MustCompile(`(?m)^(\t+)# (progress .*?)( #.*)?$`)
)

// startBot loads the recipe of a service, with its channel in the place of the log.
func startBot(t *testing.T, name string, kind botKind, rn *hookstest.Runner) (s *botService, caddy *hookstest.Server) {
	t.Helper()
	s = &botService{t: t, signer: startSigner(t), name: name, secret: "a-secret-for-trying-it-out", kind: kind}
	if kind.secret != "" {
		s.secret = kind.secret
	}
	service := httptest.NewServer(kind.api(s))
	t.Cleanup(service.Close)
	caddy = hookstest.StartProcess(t, "respond 404")
	t.Cleanup(s.settle) // before Caddy stops
	edit := func(text string) string {
		if !channelOfRecipe.MatchString(text) {
			t.Fatalf("the recipe has no channel log:\n%s", text)
		}
		s.works = progressOfRecipe.MatchString(text)
		s.hook = caddy.URL + "/api/hooks/" + hookOfRecipe.FindStringSubmatch(text)[1]
		text = strings.NewReplacer("127.0.0.1:8080", "127.0.0.1:"+caddy.Port, "localhost:8080", "localhost:"+caddy.Port,
			"runner echo", "runner http "+rn.URL).Replace(text)
		text = progressOfRecipe.ReplaceAllString(text, "$1$2")
		return channelOfRecipe.ReplaceAllStringFunc(text, func(block string) string {
			parts := channelOfRecipe.FindStringSubmatch(block)
			rest := strings.TrimPrefix(parts[2], " {")
			if rest == "" {
				rest = "\n\t\t}"
			}
			return "\t\tchannel " + parts[1] + " " + kind.channel + " {\n\t\t\turl " + service.URL + rest + "\n"
		})
	}
	s.load = func() {
		t.Helper()
		loadExample(t, caddy, filepath.Join(root, "examples", "senders", name, "Caddyfile"), edit)
	}
	s.load()
	return s, caddy
}

// Somebody asks, is told that the bot works, and has the answer in the same thread, four times; the bot does not answer itself.
func TestBotsAnswerWhereTheyAreAsked(t *testing.T) {
	t.Parallel()
	for name, kind := range botKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rn, goOn := heldAgent(t)
			s, caddy := startBot(t, name, kind, rn)
			var want []string
			for i := 1; i <= 4; i++ {
				ask := fmt.Sprintf("question %d", i)
				s.say(kind.thread, ask, false)
				want = append(want, "ann: "+ask)
				if turn := rn.Next(); !strings.Contains(turn.Text("message"), ask) {
					t.Errorf("the agent is told %q", turn.Text("message"))
				}
				var shown []string
				is := func(line string) func() bool {
					return func() bool {
						shown = s.shown(kind.thread)
						return slices.Equal(shown, append(slices.Clone(want), line))
					}
				}
				if s.works {
					hookstest.Eventually(t, "the bot says that it works", is("bot: Working on it …"))
				}
				goOn <- struct{}{}
				hookstest.Eventually(t, "the answer takes the place of that", is(fmt.Sprintf("bot: answer %d", i)))
				want = shown
			}
			hookstest.Eventually(t, "nothing is left to do", func() bool { return len(caddy.Deliveries("status=pending")) == 0 })
			s.settle()
			if len(rn.Turns) != 0 {
				t.Errorf("the agent was asked once more: %v", rn.Next().Body)
			}
			for _, answer := range s.events {
				if !strings.Contains(answer, "ignored") {
					t.Errorf("an event of the bot's own message is answered %s", answer)
				}
			}
			var listed struct {
				Runs []struct{ ChatID, Status string }
			}
			body := caddy.AdminRequest("GET", "/hooks/runs", "").Body
			if err := json.Unmarshal([]byte(body), &listed); err != nil || len(listed.Runs) != 4 {
				t.Fatalf("runs are %s, %v", body, err)
			}
			for _, run := range listed.Runs {
				if run.ChatID != listed.Runs[0].ChatID || run.Status != "completed" {
					t.Errorf("a run is %+v", run)
				}
			}
		})
	}
}

// heldAgent is an agent that answers a question of the chat when it may go on. The answers are counted. Others it answers at once.
func heldAgent(t *testing.T) (rn *hookstest.Runner, goOn chan struct{}) {
	goOn = make(chan struct{})
	answers := 0
	return hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, turn hookstest.Turn) {
		if turn.Text("hook") == "wake" {
			return
		}
		select {
		case <-goOn:
			answers++ // one at a time: it is one chat
			_, _ = fmt.Fprintf(w, "answer %d", answers)
		case <-r.Context().Done():
		}
	}), goOn
}

// What was posted when a run began is found again after a kill: nobody sees two of it, and the answer takes its place.
func TestKilledBotSaysOnceThatItWorks(t *testing.T) {
	t.Parallel()
	rn, goOn := heldAgent(t)
	s, caddy := startBot(t, "slack", botKinds["slack"], rn)
	s.say(s.kind.thread, "question", false)
	rn.Next()
	isShown := func(want ...string) func() bool {
		return func() bool { return slices.Equal(s.shown(s.kind.thread), append([]string{"ann: question"}, want...)) }
	}
	hookstest.Eventually(t, "the bot says that it works", isShown("bot: Working on it …"))
	hookstest.Eventually(t, "what was posted is in the store", func() bool {
		return strings.Contains(caddy.AdminRequest("GET", "/hooks/backup", "", "Hooks-Operator", "ann").Body, `"to":"`+s.kind.thread+`","progress":`)
	})
	// Its commit comes after the one that was seen, which may not have ended.
	if resp := caddy.Post("/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer only-for-trying-it-out"); resp.Status != 200 {
		t.Fatalf("answered %d %s", resp.Status, resp.Body)
	}
	s.settle()
	caddy.Kill()
	caddy.Load("respond 404")
	s.load()
	for rn.Next().Text("hook") != "slack" {
	}
	goOn <- struct{}{}
	hookstest.Eventually(t, "the answer takes the place of that", isShown("bot: answer 1"))
	s.settle()
	if len(s.messages) != 2 {
		t.Errorf("%d messages were posted", len(s.messages))
	}
}

// An answer to a thread that is gone is dead, with the reason, and arrives when it is sent again after the thread is back.
func TestBotWhoseThreadIsGone(t *testing.T) {
	t.Parallel()
	rn, goOn := heldAgent(t)
	s, caddy := startBot(t, "slack", botKinds["slack"], rn)
	s.mu.Lock()
	s.isGone = true
	s.mu.Unlock()
	s.say(s.kind.thread, "question", false)
	rn.Next()
	goOn <- struct{}{}
	hookstest.Eventually(t, "the delivery is given up", func() bool { return len(caddy.Deliveries("status=dead")) == 1 })
	dead := caddy.Deliveries("status=dead")[0]
	if !strings.Contains(dead.LastError, "thread_not_found") {
		t.Errorf("it is dead since %q", dead.LastError)
	}
	s.mu.Lock()
	s.isGone = false
	s.mu.Unlock()
	if resp := caddy.AdminRequest("POST", "/hooks/deliveries/"+dead.ID+"/retry", ""); resp.Status/100 != 2 {
		t.Fatalf("answered %d %s", resp.Status, resp.Body)
	}
	hookstest.Eventually(t, "the answer is there", func() bool { return slices.Equal(s.shown(s.kind.thread), []string{"ann: question", "bot: answer 1"}) })
}
