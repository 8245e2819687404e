package channels

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// thread is what a fake service keeps of one conversation.
type thread struct {
	mu    sync.Mutex
	last  int
	ids   []int
	texts map[int]string
}

// add posts a message and returns its number.
func (c *thread) add(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.texts == nil {
		c.texts = map[int]string{}
	}
	c.last++
	c.ids, c.texts[c.last] = append(c.ids, c.last), text
	return c.last
}

// change edits a message, and reports whether there is one.
func (c *thread) change(id int, text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.texts[id]; !ok {
		return false
	}
	c.texts[id] = text
	return true
}

// remove deletes a message, and reports whether there was one.
func (c *thread) remove(id int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.texts[id]
	delete(c.texts, id)
	c.ids = slices.DeleteFunc(c.ids, func(other int) bool { return other == id })
	return ok
}

// all returns the messages, the oldest first.
func (c *thread) all() (texts []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.ids {
		texts = append(texts, c.texts[id])
	}
	return texts
}

// editor is a channel whose messages can be changed, with a fake of its service that has one conversation.
type editor struct {
	name    string
	start   func(t *testing.T, token string) (*service, *thread)
	config  func(url, token, more string) string
	to      string
	long    int // characters that take more than one message
	authors []string
}

var editors = []editor{
	{"github", startGitHub, simpleConfig("github"), "acme/widgets#7", 100_000, []string{"acme-bot"}},
	{"gitlab", startGitLab, simpleConfig("gitlab"), "acme/tools/widgets#7", 100_000, []string{"42", "acme-bot"}},
	{"gitlab merge request", startGitLab, simpleConfig("gitlab"), "acme/tools/widgets!8", 100_000, []string{"42", "acme-bot"}},
	{"linear", startLinear, simpleConfig("linear"), "ENG-123", 100_000, []string{linearUUID(99)}},
	{"mattermost", startMattermost, serverConfig("mattermost"), mattermostOf("c", 1), 30_000, []string{mattermostOf("u", 1)}},
	{"mattermost thread", startMattermost, serverConfig("mattermost"), mattermostOf("c", 1) + "/" + mattermostOf("r", 1), 30_000, []string{mattermostOf("u", 1)}},
}

func forEachEditor(t *testing.T, test func(t *testing.T, e editor, s *service, c *thread, channel engine.Channel)) {
	for _, e := range editors {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s, c := e.start(t, token)
			test(t, e, s, c, loadChannel(t, e.config(s.URL, token, "")))
		})
	}
}

func begin(t *testing.T, channel engine.Channel, to string) string {
	t.Helper()
	progress, err := channel.(engine.ProgressChannel).Begin(t.Context(), to, "Working on it …")
	if err != nil || progress == "" || len(progress) > engine.MaxProgress {
		t.Fatalf("began with %q: %v", progress, err)
	}
	return progress
}

func TestProgressBecomesTheAnswer(t *testing.T) {
	t.Parallel()
	forEachEditor(t, func(t *testing.T, e editor, s *service, c *thread, channel engine.Channel) {
		c.add("a question")
		d := delivery(e.to, "**The** answer")
		d.Progress = begin(t, channel, e.to)
		if got := c.all(); !slices.Equal(got, []string{"a question", "Working on it …"}) {
			t.Fatalf("the thread has %q", got)
		}
		if err := channel.Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if got := c.all(); !slices.Equal(got, []string{"a question", "**The** answer"}) || d.Sent != 1 {
			t.Errorf("the thread has %q", got)
		}
		// The second delivery has nothing to replace.
		if err := channel.Send(t.Context(), delivery(e.to, "more")); err != nil {
			t.Fatal(err)
		}
		if got := c.all(); len(got) != 3 || got[2] != "more" {
			t.Errorf("the thread has %q", got)
		}
	})
}

func TestOnlyTheFirstPartReplacesProgress(t *testing.T) {
	t.Parallel()
	forEachEditor(t, func(t *testing.T, e editor, s *service, c *thread, channel engine.Channel) {
		text := strings.TrimSpace(strings.Repeat("word ", e.long/5))
		d := delivery(e.to, text)
		d.Progress = begin(t, channel, e.to)
		if err := channel.Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		got := c.all()
		if len(got) < 2 || d.Sent != len(got) || strings.Join(got, " ") != text {
			t.Errorf("%d parts arrived in %d messages", d.Sent, len(got))
		}
	})
}

func TestProgressThatIsGoneIsPostedAnew(t *testing.T) {
	t.Parallel()
	forEachEditor(t, func(t *testing.T, e editor, s *service, c *thread, channel engine.Channel) {
		d := delivery(e.to, "The answer")
		d.Progress = begin(t, channel, e.to)
		c.remove(1)
		if err := channel.Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if got := c.all(); !slices.Equal(got, []string{"The answer"}) {
			t.Errorf("the thread has %q", got)
		}
		if n := len(s.seen()); n != 3 {
			t.Errorf("it took %d requests", n)
		}
	})
}

func TestWithdrawnProgressIsGone(t *testing.T) {
	t.Parallel()
	forEachEditor(t, func(t *testing.T, e editor, s *service, c *thread, channel engine.Channel) {
		c.add("a question")
		progress := begin(t, channel, e.to)
		shows := channel.(engine.ProgressChannel)
		if err := shows.Withdraw(t.Context(), e.to, progress); err != nil {
			t.Fatal(err)
		}
		if got := c.all(); !slices.Equal(got, []string{"a question"}) {
			t.Errorf("the thread has %q", got)
		}
		if err := shows.Withdraw(t.Context(), e.to, progress); err == nil {
			t.Error("what is gone is removed again")
		}
		before := len(s.seen())
		if id, err := shows.Begin(t.Context(), e.to, " \u200b\n"); id != "" || err == nil {
			t.Errorf("a blank text is posted as %q: %v", id, err)
		}
		if _, err := shows.Begin(t.Context(), "../x", "x"); err == nil {
			t.Error("begins where no chat is")
		}
		if err := shows.Withdraw(t.Context(), "../x", progress); err == nil {
			t.Error("removes where no chat is")
		}
		if n := len(s.seen()); n != before {
			t.Errorf("%d requests are sent", n-before)
		}
	})
}

// Progress comes from the store, and becomes a part of a path.
func TestProgressOfAnotherFormIsIgnored(t *testing.T) {
	t.Parallel()
	forEachEditor(t, func(t *testing.T, e editor, s *service, c *thread, channel engine.Channel) {
		for _, progress := range []string{"../1", "1/../2", "../../users/me/11111111111", "0", "-1", "1?x", "%31", "x\n1", " 1", strings.Repeat("1", 100)} {
			if err := channel.(engine.ProgressChannel).Withdraw(t.Context(), e.to, progress); err == nil {
				t.Errorf("%q is removed", progress)
			}
			if len(s.seen()) > 0 {
				t.Fatalf("a request is sent for %q", progress)
			}
		}
		d := delivery(e.to, "The answer")
		d.Progress = "../1"
		if err := channel.Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if n := len(s.seen()); n != 1 {
			t.Errorf("it took %d requests", n)
		}
	})
}

// An edit whose answer gets lost is made again, and leaves one message.
func TestEditIsRepeated(t *testing.T) {
	t.Parallel()
	forEachEditor(t, func(t *testing.T, e editor, s *service, c *thread, _ engine.Channel) {
		var edits int
		front := startService(t, func(w http.ResponseWriter, r request, n int) {
			req, _ := http.NewRequest(r.method, s.URL+r.path, strings.NewReader(r.body))
			req.Header = r.header
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if edits++; edits == 2 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(resp.StatusCode)
			buf := make([]byte, 64<<10)
			for {
				n, err := resp.Body.Read(buf)
				_, _ = w.Write(buf[:n])
				if err != nil {
					return
				}
			}
		})
		channel := loadChannel(t, e.config(front.URL, token, ""))
		d := delivery(e.to, "The answer")
		d.Progress = begin(t, channel, e.to)
		outcome{kind: "again"}.check(t, channel.Send(t.Context(), d))
		if err := channel.Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if got := c.all(); !slices.Equal(got, []string{"The answer"}) {
			t.Errorf("the thread has %q", got)
		}
	})
}

func TestAuthorsAreAsked(t *testing.T) {
	t.Parallel()
	forEachEditor(t, func(t *testing.T, e editor, s *service, c *thread, channel engine.Channel) {
		got, err := channel.(engine.AuthorChannel).Authors(t.Context())
		if err != nil || !slices.Equal(got, e.authors) {
			t.Errorf("got %q: %v", got, err)
		}
		for _, answer := range []string{`{}`, `null`, `{"login":7,"id":"","username":[],"data":{"viewer":null}}`, ``, `{"data":7}`} {
			odd := startService(t, func(w http.ResponseWriter, _ request, _ int) { say(w, 200, answer) })
			if got, err := loadChannel(t, e.config(odd.URL, token, "")).(engine.AuthorChannel).Authors(t.Context()); err == nil {
				t.Errorf("%s is understood as %q", answer, got)
			}
		}
		other := loadChannel(t, e.config(s.URL, "another-token", ""))
		if got, err := other.(engine.AuthorChannel).Authors(t.Context()); err == nil {
			t.Errorf("a token that the service does not know is that of %q", got)
		}
	})
}

// numberAt reads the number at the end of a path, 0 if there is none.
func numberAt(path, before string) int {
	rest, ok := strings.CutPrefix(path, before)
	n, err := strconv.Atoi(rest)
	if !ok || err != nil {
		return 0
	}
	return n
}
