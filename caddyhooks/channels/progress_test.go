package channels

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// progressBot is a service that keeps messages: how it is started and what goes after the URL of it, two chats on it with their
// thread there, and the markup of a text.
type progressBot struct {
	name    string
	start   func(t *testing.T) (s *service, config string)
	chats   []message // without text
	noChat  string    // one with a thread that does not exist, if the service says so
	written func(text string) string
}

var progressBots = []progressBot{
	{"slack", func(t *testing.T) (*service, string) {
		s := startSlack(t, "hush-1")
		return s, "slack hush-1 {\n url " + s.URL + "/api\n}"
	}, []message{{"C0123456789", "C0123456789", "", ""}, {"C0123456789/1700000000.000100", "C0123456789", "1700000000.000100", ""}, {"U0123456789", "D0123456789", "", ""}},
		"C0123456789/1700000000.000101", escapeSlack.Replace},
	{"telegram", func(t *testing.T) (*service, string) {
		s := startTelegram(t, "123:hush")
		return s, "telegram 123:hush {\n url " + s.URL + "\n}"
	}, []message{{"-1001234567890", "-1001234567890", "", ""}, {"-1001234567890/42", "-1001234567890", "42", ""}}, "-1001234567890/43", strings.TrimSpace},
	{"discord", func(t *testing.T) (*service, string) {
		s := startDiscord(t, "hush-1", never)
		return s.service, "discord hush-1 {\n url " + s.URL + "/api/v10\n}"
	}, []message{{"123456789012345678", "123456789012345678", "", ""}, {"987654321098765432", "987654321098765432", "", ""}}, "987654321098765433", escapeMarkdown},
	{"matrix", func(t *testing.T) (*service, string) {
		s := startMatrix(t, "hush-1", "!a:example.org", never)
		return s.service, "matrix " + s.URL + " hush-1"
	}, []message{{"!a:example.org", "!a:example.org", "", ""}, {"!a:example.org/$question", "!a:example.org", "$question", ""}, {"#team,a:example.org/$question", "!a:example.org", "$question", ""}},
		"!a:example.org/$nothing", strings.TrimSpace},
}

// forEachProgress runs a test for all chats of all services that can edit messages.
func forEachProgress(t *testing.T, test func(t *testing.T, b progressBot, s *service, channel progressChannel, chat message)) {
	for _, b := range progressBots {
		for _, chat := range b.chats {
			t.Run(b.name+" "+strings.ReplaceAll(chat.id, "/", " "), func(t *testing.T) {
				t.Parallel()
				s, config := b.start(t)
				test(t, b, s, loadChannel(t, config).(progressChannel), chat)
			})
		}
	}
}

type progressChannel interface {
	engine.Channel
	engine.ProgressChannel
}

// beginProgress posts "Working on it …" and makes a delivery that is to replace it.
func beginProgress(t *testing.T, channel progressChannel, to, text string) *engine.Delivery {
	t.Helper()
	progress, err := channel.Begin(t.Context(), to, "Working on it …")
	if err != nil || progress == "" || len(progress) > engine.MaxProgress {
		t.Fatalf("began %q, %v", progress, err)
	}
	d := delivery(to, text)
	d.Progress = progress
	return d
}

// check checks what a service has: all in one chat and thread, first the message that began, if it stayed.
func (b progressBot) check(t *testing.T, s *service, chat message, stayed string, texts ...string) {
	t.Helper()
	all := s.kept()
	if len(all) != len(texts) {
		t.Fatalf("got %d messages, want %d: %.300v", len(all), len(texts), all)
	}
	for i, m := range all {
		if m.chat != chat.chat || m.thread != chat.thread || m.text != texts[i] {
			t.Errorf("message %d is %.300q, want %.200q in %s %s", i, m, texts[i], chat.chat, chat.thread)
		}
	}
	if stayed != "" && !strings.HasSuffix(stayed, all[0].id) {
		t.Errorf("the message %s is gone, there is %s", stayed, all[0].id)
	}
}

func TestAnswerTakesThePlaceOfTheProgress(t *testing.T) {
	t.Parallel()
	forEachProgress(t, func(t *testing.T, b progressBot, s *service, channel progressChannel, chat message) {
		d := beginProgress(t, channel, chat.id, "Done: *a* <b> & \"c\"")
		b.check(t, s, chat, d.Progress, b.written("Working on it …"))
		progress := d.Progress
		if err := channel.Send(t.Context(), d); err != nil || d.Sent != 1 || d.Progress != progress {
			t.Fatalf("%v, %+v", err, d)
		}
		b.check(t, s, chat, progress, b.written(d.Body))
		// It has arrived, and so a second attempt changes nothing.
		if err := channel.Send(t.Context(), d); err != nil {
			t.Error(err)
		}
		b.check(t, s, chat, progress, b.written(d.Body))
	})
}

func TestLongAnswerTakesThePlaceWithItsFirstPart(t *testing.T) {
	t.Parallel()
	forEachProgress(t, func(t *testing.T, b progressBot, s *service, channel progressChannel, chat message) {
		d := beginProgress(t, channel, chat.id, longText)
		if err := channel.Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		all := s.kept()
		var words []string
		for _, m := range all {
			words = append(words, strings.Fields(m.text)...)
			if m.chat != chat.chat || m.thread != chat.thread {
				t.Errorf("a part is in %s %s", m.chat, m.thread)
			}
		}
		if !slices.Equal(words, strings.Fields(b.written(longText))) || len(all) != d.Sent || d.Sent < 3 || !strings.HasSuffix(d.Progress, all[0].id) {
			t.Errorf("%d words arrived in %d messages; %d parts are noted", len(words), len(all), d.Sent)
		}
	})
}

// Nobody knows whether a message was edited when the answer gets lost. It is edited again, and not posted beside.
func TestRepeatedEditPostsNothing(t *testing.T) {
	t.Parallel()
	forEachProgress(t, func(t *testing.T, b progressBot, s *service, channel progressChannel, chat message) {
		d := beginProgress(t, channel, chat.id, "Done.")
		began := len(s.seen())
		requests := 1 // that an edit takes
		if b.name == "matrix" {
			requests = 2
		}
		s.lose = func(n int) bool { return n <= began+3*requests && (n-began)%requests == 0 }
		for range 3 {
			outcome{kind: "again"}.check(t, channel.Send(t.Context(), d))
			b.check(t, s, chat, d.Progress, b.written("Done."))
		}
		if err := channel.Send(t.Context(), d); err != nil || d.Sent != 1 {
			t.Fatal(err)
		}
		b.check(t, s, chat, d.Progress, b.written("Done."))
	})
}

func TestAnswerIsPostedIfTheProgressIsGone(t *testing.T) {
	t.Parallel()
	forEachProgress(t, func(t *testing.T, b progressBot, s *service, channel progressChannel, chat message) {
		d := beginProgress(t, channel, chat.id, "Done.")
		s.remove(s.kept()[0].id)
		if err := channel.Send(t.Context(), d); err != nil || d.Sent != 1 {
			t.Fatal(err)
		}
		b.check(t, s, chat, "", b.written("Done."))
	})
}

func TestWithdrawnProgressIsRemoved(t *testing.T) {
	t.Parallel()
	forEachProgress(t, func(t *testing.T, b progressBot, s *service, channel progressChannel, chat message) {
		d := beginProgress(t, channel, chat.id, "")
		for range 2 { // somebody else may have removed it
			if err := channel.Withdraw(t.Context(), chat.id, d.Progress); err != nil {
				t.Error(err)
			}
			b.check(t, s, chat, "")
		}
	})
}

// A progress comes out of a store that somebody may have restored from elsewhere.
func TestProgressThatIsNoneIsIgnored(t *testing.T) {
	t.Parallel()
	forEachProgress(t, func(t *testing.T, b progressBot, s *service, channel progressChannel, chat message) {
		bad := []string{"x", "0", "-1", "../x", "1/../../x", "C1", "C0123456789/1", "C0123456789/1.1/..", "1\n", "123456789012345678\n", "$a/../b", "$", "$a?b", "$a%2f", "!a:b", "１", "\x00", "\xff",
			strings.Repeat("1", 1000), "$" + strings.Repeat("a", 1000)}
		for i, progress := range bad {
			if err := channel.Withdraw(t.Context(), chat.id, progress); err == nil {
				t.Errorf("%.50q passes for a message", progress)
			}
			d := delivery(chat.id, "Done.")
			d.ID += string(rune('a' + i))
			d.Progress = progress
			if err := channel.Send(t.Context(), d); err != nil || len(s.kept()) != i+1 {
				t.Errorf("%.50q: %v, %d messages", progress, err, len(s.kept()))
			}
		}
		posts := 0
		for _, r := range s.seen() {
			if r.method == "POST" && !strings.Contains(r.path, "update") || r.method == "PUT" {
				posts++
			}
		}
		if posts != len(bad) {
			t.Errorf("%d requests for %d messages", posts, len(bad))
		}
	})
}

func TestThreadThatDoesNotExistIsFinal(t *testing.T) {
	t.Parallel()
	for _, b := range progressBots {
		s, config := b.start(t)
		channel := loadChannel(t, config).(progressChannel)
		words := map[string]string{"telegram": "there is no such topic in the chat", "discord": "there is no such channel or thread"}[b.name]
		if words == "" {
			words = "there is no such thread in the"
		}
		d := delivery(b.noChat, "x")
		outcome{kind: "final", words: words}.check(t, channel.Send(t.Context(), d))
		_, err := channel.Begin(t.Context(), b.noChat, "x")
		outcome{kind: "final", words: words}.check(t, err)
		if len(s.kept()) > 0 {
			t.Errorf("%s: got %v", b.name, s.kept())
		}
		// Mended, it can be sent again.
		d.To = b.chats[len(b.chats)-1].id
		if err := channel.Send(t.Context(), d); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
	}
}

func TestProgressOfBadTexts(t *testing.T) {
	t.Parallel()
	forEachProgress(t, func(t *testing.T, b progressBot, s *service, channel progressChannel, chat message) {
		for _, text := range []string{"", " \n", "\u200b", "\x00"} {
			if progress, err := channel.Begin(t.Context(), chat.id, text); err == nil || progress != "" {
				t.Errorf("%q: %q, %v", text, progress, err)
			}
		}
		for _, to := range []string{"", "../x", "x?y", chat.id + "\n"} {
			if progress, err := channel.Begin(t.Context(), to, "x"); err == nil || progress != "" {
				t.Errorf("%q: %q, %v", to, progress, err)
			}
		}
		if len(s.seen()) > 0 {
			t.Error("something was sent")
		}
		if _, err := channel.Begin(t.Context(), chat.id, longText); err != nil || len(s.kept()) != 1 {
			t.Errorf("%d messages, %v", len(s.kept()), err)
		}
	})
}

// FuzzAnswersToProgress has a service answer anything to Begin. What comes of it fits into the store and can be used again.
func FuzzAnswersToProgress(f *testing.F) {
	for _, b := range bots {
		f.Add(200, b.ok)
	}
	f.Add(200, `{"ok":true,"channel":"C1/../x","ts":"1.1"}`)
	f.Add(200, `{"ok":true,"result":{"message_id":-7}}`)
	f.Add(200, `{"ok":true,"user_id":"U1","bot_id":"\n","id":"../@me"}`)
	f.Add(400, `{"ok":false,"error_code":400,"description":"message is not modified"}`)
	f.Add(404, `{"code":10008}`)
	f.Add(200, `{"ok":false,"error":"message_not_found"}`)
	f.Add(200, `{"event_id":"$a/b","content":{}}`)
	var status int
	var body string
	s := startService(f, func(w http.ResponseWriter, _ request, _ int) { say(w, status, body) })
	loaded := make([]progressChannel, len(bots))
	for i, b := range bots {
		loaded[i] = loadChannel(f, b.config(s.URL, token, "")).(progressChannel)
	}
	f.Fuzz(func(t *testing.T, answered int, text string) {
		if answered < 200 || answered > 599 {
			return
		}
		status, body = answered, text
		for i, channel := range loaded {
			progress, err := channel.Begin(t.Context(), bots[i].to, "x")
			switch {
			case err != nil && (progress != "" || strings.Contains(err.Error(), token)), len(progress) > engine.MaxProgress, err == nil && answered > 299:
				t.Errorf("%s: %d %s gives %q, %v", bots[i].name, answered, text, progress, err)
			case progress != "":
				d := delivery(bots[i].to, "x")
				d.Progress = progress
				_ = channel.Send(t.Context(), d)
				if err := channel.Withdraw(t.Context(), bots[i].to, progress); errors.Is(err, errNoProgress) {
					t.Errorf("%s: %q cannot be withdrawn", bots[i].name, progress)
				}
			}
			if author, ok := channel.(engine.AuthorChannel); ok {
				ids, err := author.Authors(t.Context())
				if (err == nil) != (len(ids) > 0) || slices.ContainsFunc(ids, func(id string) bool { return !accountName.MatchString(id) }) {
					t.Errorf("%s: %d %s gives %q, %v", bots[i].name, answered, text, ids, err)
				}
			}
		}
		s.mu.Lock()
		s.requests = nil
		s.mu.Unlock()
	})
}

func TestMatrixEditsFitIntoAnEvent(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("x ", 20_000), strings.Repeat("\"\\", 20_000), strings.Repeat("🎉", 20_000)} {
		part := matrixSplitter.split(text, runID)[0]
		if size := len(encodeJSON(newMatrixEdit(part, "$"+strings.Repeat("a", 200)))); size > 60_000 {
			t.Errorf("an edit has %d bytes", size)
		}
	}
	s := startMatrix(t, "hush-1", "!a:example.org", never)
	channel := loadChannel(t, "matrix "+s.URL+" hush-1").(progressChannel)
	d := beginProgress(t, channel, "!a:example.org/$question", "Done.")
	if err := channel.Send(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	all := s.seen()
	wantJSON(t, all[0].body, `{"msgtype":"m.notice","body":"Working on it …","m.mentions":{},"m.relates_to":{"rel_type":"m.thread","event_id":"$question",`+
		`"is_falling_back":true,"m.in_reply_to":{"event_id":"$question"}}}`)
	wantJSON(t, all[2].body, `{"msgtype":"m.notice","body":"* Done.","m.mentions":{},"m.new_content":{"msgtype":"m.notice","body":"Done.","m.mentions":{}},`+
		`"m.relates_to":{"rel_type":"m.replace","event_id":"$event1"}}`)
}

func TestChannelsKnowTheirOwnMessages(t *testing.T) {
	t.Parallel()
	want := map[string][]string{"slack": {"U0AGENT", "B0AGENT"}, "telegram": {"123"}, "discord": {"1200000000000000001"}}
	for _, b := range progressBots {
		_, config := b.start(t)
		channel, ok := loadChannel(t, config).(engine.AuthorChannel)
		if !ok {
			if want[b.name] != nil {
				t.Errorf("%s does not know its messages", b.name)
			}
			continue
		}
		if ids, err := channel.Authors(t.Context()); err != nil || !slices.Equal(ids, want[b.name]) {
			t.Errorf("%s: got %q, %v", b.name, ids, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if ids, err := channel.Authors(ctx); b.name != "telegram" && (err == nil || ids != nil) {
			t.Errorf("%s: got %q, %v", b.name, ids, err)
		}
		other := loadChannel(t, strings.ReplaceAll(strings.ReplaceAll(config, "hush-1", "other"), "123:hush", "other")).(engine.AuthorChannel)
		if ids, err := other.Authors(t.Context()); err == nil || len(ids) > 0 || strings.Contains(err.Error(), "other ") {
			t.Errorf("%s: got %q, %v", b.name, ids, err)
		}
	}
}

func TestOnlyChannelsThatCanEditShowProgress(t *testing.T) {
	t.Parallel()
	for _, config := range []string{"log", "webhook http://x", "email mail.example.com {\n from a@example.com\n}"} {
		if _, ok := loadChannel(t, config).(engine.ProgressChannel); ok {
			t.Errorf("%s shows progress", config)
		}
	}
}

func TestSlackUpdateOnTheWire(t *testing.T) {
	t.Parallel()
	s := startSlack(t, "hush-1")
	channel := loadChannel(t, "slack hush-1 {\n url "+s.URL+"/api\n}").(progressChannel)
	d := beginProgress(t, channel, "U0123456789", "*a* <!channel> :tada:")
	if err := channel.Send(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	update := s.seen()[1]
	if update.path != "/api/chat.update" {
		t.Errorf("got %s", update.path)
	}
	text, _ := json.Marshal("*a* &lt;!channel&gt; :tada:")
	wantJSON(t, update.body, `{"channel":"D0123456789","ts":"1503435956.000001","text":`+string(text)+`,"blocks":[{"type":"section","text":{"type":"plain_text","text":`+string(text)+
		`,"emoji":false}}],"parse":"none","link_names":false}`)
}
