package channels

import (
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

const questionID = "q_0197f5a0111172228333444455556666_3"

// answerLink is where a question can be answered as well.
const answerLink = "https://hooks.example.com/api/hooks/answers/" + questionID + "#token_1-a"

var mayDeploy = engine.ChannelQuestion{ID: questionID, Text: "May *it* be <b>deployed</b> & started?", Choices: []string{"yes", "no"}, Link: answerLink}

type questionChannel interface {
	engine.Channel
	engine.QuestionChannel
}

// forEachAsked runs a test for all chats of all services that have buttons.
func forEachAsked(t *testing.T, test func(t *testing.T, b progressBot, s *service, channel questionChannel, chat message)) {
	forEachProgress(t, func(t *testing.T, b progressBot, s *service, channel progressChannel, chat message) {
		asks, ok := channel.(questionChannel)
		if ok != (b.name != "matrix") {
			t.Errorf("%s asks: %v", b.name, ok)
		}
		if ok {
			test(t, b, s, asks, chat)
		}
	})
}

// linkLine is how a link is shown.
func linkLine(service, words string) string {
	switch service {
	case "slack":
		return "\n" + words + " <" + answerLink + ">"
	case "telegram":
		return "\n\n" + words + " " + answerLink
	default:
		return "\n-# " + words + " <" + answerLink + ">"
	}
}

func TestQuestionIsAskedWithButtonsAndClosed(t *testing.T) {
	t.Parallel()
	forEachAsked(t, func(t *testing.T, b progressBot, s *service, channel questionChannel, chat message) {
		posted, err := channel.Ask(t.Context(), chat.id, mayDeploy)
		if err != nil || posted == "" || len(posted) > engine.MaxProgress {
			t.Fatalf("%q, %v", posted, err)
		}
		b.check(t, s, chat, posted, b.written(mayDeploy.Text)+linkLine(b.name, "Or answer at"))
		id := s.kept()[0].id
		if got, want := s.buttonsOf(id), []askedButton{{"yes", questionID + ":0"}, {"no", questionID + ":1"}}; !slices.Equal(got, want) {
			t.Errorf("the buttons are %q", got)
		}
		for range 2 { // nobody knows whether the first was heard
			if err := channel.Close(t.Context(), chat.id, posted, "May *it*? Ana <1> answered: yes"); err != nil {
				t.Fatal(err)
			}
			b.check(t, s, chat, posted, b.written("May *it*? Ana <1> answered: yes"))
			if got := s.buttonsOf(id); len(got) > 0 {
				t.Errorf("the closed question has the buttons %q", got)
			}
		}
		// Somebody removed it: there is nothing to close.
		s.remove(id)
		if err := channel.Close(t.Context(), chat.id, posted, "closed"); err != nil || len(s.kept()) > 0 {
			t.Errorf("%v, %v", err, s.kept())
		}
	})
}

func TestQuestionWithoutChoicesOrLink(t *testing.T) {
	t.Parallel()
	forEachAsked(t, func(t *testing.T, b progressBot, s *service, channel questionChannel, chat message) {
		for _, q := range []engine.ChannelQuestion{{ID: questionID, Text: "What now?", Link: answerLink}, {ID: questionID, Text: "What now?"}} {
			posted, err := channel.Ask(t.Context(), chat.id, q)
			if err != nil {
				t.Fatal(err)
			}
			want := "What now?"
			if q.Link != "" {
				want += linkLine(b.name, "Answer at")
			}
			b.check(t, s, chat, posted, want)
			id := s.kept()[0].id
			if got := s.buttonsOf(id); len(got) > 0 {
				t.Errorf("the buttons are %q", got)
			}
			s.remove(id)
		}
	})
}

func TestQuestionsThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	forEachAsked(t, func(t *testing.T, b progressBot, s *service, channel questionChannel, chat message) {
		for _, tc := range []struct {
			to    string
			q     engine.ChannelQuestion
			words string
		}{
			{"../x", mayDeploy, "a chat on "},
			{chat.id + "\n", mayDeploy, "a chat on "},
			{chat.id, engine.ChannelQuestion{ID: "q_1", Text: "x"}, "has no id"},
			{chat.id, engine.ChannelQuestion{ID: questionID, Text: " \u200b\n"}, "is blank"},
			{chat.id, engine.ChannelQuestion{ID: questionID, Text: "x", Choices: make([]string, 26)}, "more than 25 choices"},
			{chat.id, engine.ChannelQuestion{ID: questionID, Text: "x", Link: "https://x/" + strings.Repeat("x", 4000)}, "link"},
		} {
			posted, err := channel.Ask(t.Context(), tc.to, tc.q)
			outcome{kind: "final", words: tc.words}.check(t, err)
			if posted != "" {
				t.Errorf("posted %q", posted)
			}
		}
		for _, tc := range []struct{ to, posted, text, words string }{
			{"../x", "1", "x", "a chat on "},
			{chat.id, "", "x", "no message"}, {chat.id, "../1", "x", "no message"}, {chat.id, "1/../../x", "x", "no message"}, {chat.id, "0", "x", "no message"},
		} {
			outcome{kind: "final", words: tc.words}.check(t, channel.Close(t.Context(), tc.to, tc.posted, tc.text))
		}
		if len(s.seen()) > 0 {
			t.Error("something was sent")
		}
		posted, err := channel.Ask(t.Context(), chat.id, mayDeploy)
		if err != nil {
			t.Fatal(err)
		}
		outcome{kind: "final", words: "blank"}.check(t, channel.Close(t.Context(), chat.id, posted, " \n"))
	})
}

// A question of any length is one message, which says what is left out of it.
func TestLongQuestionIsCut(t *testing.T) {
	t.Parallel()
	forEachAsked(t, func(t *testing.T, b progressBot, s *service, channel questionChannel, chat message) {
		for _, text := range []string{longText, strings.Repeat("&", engine.MaxQuestionText), strings.Repeat("*🎉", 3000), strings.Repeat("\u200b", 12_000) + "What?", strings.Repeat("@alice ", 2000)} {
			q := mayDeploy
			q.Text, q.Choices = text, []string{strings.Repeat("&", 100), "", "a\nb\u202e", strings.Repeat("ä", 61), "日本", "\U0001F1E9\U0001F1EA"}
			for i := len(q.Choices); i < maxButtons; i++ {
				q.Choices = append(q.Choices, fmt.Sprint("choice ", i))
			}
			posted, err := channel.Ask(t.Context(), chat.id, q)
			if err != nil || posted == "" {
				t.Fatal(err)
			}
			all := s.kept()
			if len(all) != 1 || strings.Contains(text, "What?") != strings.Contains(all[0].text, "What?") ||
				strings.Contains(text, "What?") == strings.Contains(strings.ReplaceAll(all[0].text, `\`, ""), "more characters are left out here. Run "+runID+" has all of them.") {
				t.Errorf("%.20q became %d messages: %q", text, len(all), all[0].text)
			}
			if !strings.HasSuffix(all[0].text, linkLine(b.name, "Or answer at")) {
				t.Errorf("the link is lost: %q", all[0].text[max(0, len(all[0].text)-300):])
			}
			buttons := s.buttonsOf(all[0].id)
			for i, button := range buttons {
				if want := fmt.Sprintf("%s:%d", questionID, i); button.data != want {
					t.Errorf("button %d is %q", i, button)
				}
			}
			if len(buttons) != maxButtons || buttons[1].label != "Choice 2" || buttons[2].label != "a b" || !strings.HasSuffix(buttons[3].label, "ä…") || buttons[4].label != "日本" {
				t.Errorf("the buttons are %q", buttons)
			}
			if err := channel.Close(t.Context(), chat.id, posted, text); err != nil || len(s.kept()) != 1 {
				t.Errorf("%v, %d messages", err, len(s.kept()))
			}
			s.remove(all[0].id)
		}
	})
}

// Discord knows a question that is asked again because its answer got lost.
func TestDiscordAsksOnce(t *testing.T) {
	t.Parallel()
	s := startDiscord(t, "hush-1", func(n int) bool { return n == 1 })
	channel := loadChannel(t, "discord hush-1 {\n url "+s.URL+"/api/v10\n}").(questionChannel)
	_, err := channel.Ask(t.Context(), "123456789012345678", mayDeploy)
	outcome{kind: "again"}.check(t, err)
	if _, err := channel.Ask(t.Context(), "123456789012345678", mayDeploy); err != nil {
		t.Fatal(err)
	}
	if len(s.posted) != 1 {
		t.Errorf("asked %d times", len(s.posted))
	}
	other := mayDeploy
	other.ID = "q_0197f5a0111172228333444455556666_4"
	if _, err := channel.Ask(t.Context(), "123456789012345678", other); err != nil || len(s.posted) != 2 {
		t.Errorf("%v: %d questions are asked", err, len(s.posted))
	}
}

func TestErrorsOfQuestionsAreThoseOfSend(t *testing.T) {
	t.Parallel()
	unreachable := httptest.NewServer(nil)
	unreachable.Close()
	for _, b := range bots {
		if checkAskedActs[b.name] == nil {
			continue
		}
		try := func(url string, want outcome) {
			t.Helper()
			channel := loadChannel(t, b.config(url, token, "timeout 5s")).(questionChannel)
			_, err := channel.Ask(t.Context(), b.to, mayDeploy)
			want.check(t, err)
			posted := map[string]string{"slack": "C0123456789/1700000000.000200", "telegram": "7", "discord": "1300000000000000000"}[b.name]
			err = channel.Close(t.Context(), b.to, posted, "closed")
			want.check(t, err)
			if strings.Contains(err.Error(), token) {
				t.Errorf("%s: the error has the token: %v", b.name, err)
			}
		}
		answering := func(status int, retryAfter string) string {
			return startService(t, func(w http.ResponseWriter, _ request, _ int) {
				if retryAfter != "" {
					w.Header().Set("Retry-After", retryAfter)
				}
				say(w, status, `{}`)
			}).URL
		}
		try(unreachable.URL, outcome{kind: "unreachable"})
		try(answering(429, "7"), outcome{kind: "later", after: 7 * time.Second})
		try(answering(500, ""), outcome{kind: "again"})
		try(answering(401, ""), outcome{kind: "final"})
		try(answering(200, ""), outcome{kind: "again", words: "is not what"})
	}
}

func TestQuestionsOnTheWire(t *testing.T) {
	t.Parallel()
	asked := map[string][2]string{
		"slack": {
			`{"channel":"C0123456789","thread_ts":"1700000000.000100","text":"May *it* be &lt;b&gt;deployed&lt;/b&gt; &amp; started?","mrkdwn":false,"parse":"none","link_names":false,
			"unfurl_links":false,"unfurl_media":false,"blocks":[
			{"type":"section","text":{"type":"plain_text","text":"May *it* be &lt;b&gt;deployed&lt;/b&gt; &amp; started?","emoji":false}},
			{"type":"actions","elements":[
				{"type":"button","text":{"type":"plain_text","text":"yes","emoji":false},"value":"` + questionID + `:0","action_id":"` + questionID + `:0"},
				{"type":"button","text":{"type":"plain_text","text":"no","emoji":false},"value":"` + questionID + `:1","action_id":"` + questionID + `:1"}]},
			{"type":"context","elements":[{"type":"mrkdwn","text":"Or answer at <` + answerLink + `>","verbatim":true}]}]}`,
			`{"channel":"C0123456789","ts":"1503435956.000001","text":"closed","blocks":[{"type":"section","text":{"type":"plain_text","text":"closed","emoji":false}}],"parse":"none","link_names":false}`,
		},
		"telegram": {
			`{"chat_id":-1001234567890,"message_thread_id":42,"text":"May *it* be <b>deployed</b> & started?\n\nOr answer at ` + answerLink + `","link_preview_options":{"is_disabled":true},
			"reply_markup":{"inline_keyboard":[[{"text":"yes","callback_data":"` + questionID + `:0"},{"text":"no","callback_data":"` + questionID + `:1"}]]}}`,
			`{"chat_id":-1001234567890,"message_id":1,"text":"closed","link_preview_options":{"is_disabled":true}}`,
		},
		"discord": {
			`{"content":"May \\*it\\* be \\<b\\>deployed\\</b\\> & started?\n-# Or answer at <` + answerLink + `>","allowed_mentions":{"parse":[]},"flags":4,
			"nonce":"` + discordNonce(&engine.Delivery{ID: questionID}) + `","enforce_nonce":true,"components":[{"type":1,"components":[
			{"type":2,"style":2,"label":"yes","custom_id":"` + questionID + `:0"},{"type":2,"style":2,"label":"no","custom_id":"` + questionID + `:1"}]}]}`,
			`{"content":"closed","allowed_mentions":{"parse":[]},"flags":4,"components":[]}`,
		},
	}
	for _, b := range progressBots {
		want, ok := asked[b.name]
		if !ok {
			continue
		}
		s, config := b.start(t)
		channel := loadChannel(t, config).(questionChannel)
		to := b.chats[min(1, len(b.chats)-1)].id
		posted, err := channel.Ask(t.Context(), to, mayDeploy)
		if err == nil {
			err = channel.Close(t.Context(), to, posted, "closed")
		}
		if err != nil {
			t.Fatal(err)
		}
		all := s.seen()
		wantJSON(t, all[0].body, want[0])
		wantJSON(t, all[1].body, want[1])
	}
}

func TestSlackWhispers(t *testing.T) {
	t.Parallel()
	s := startSlack(t, "hush-1")
	channel := loadChannel(t, "slack hush-1 {\n url "+s.URL+"/api\n}").(*Slack)
	if err := channel.Whisper(t.Context(), "C0123456789", "1700000000.000100", "U1", "Ana <!channel> answered first: *yes*"); err != nil {
		t.Fatal(err)
	}
	r := s.one()
	if r.path != "/api/chat.postEphemeral" {
		t.Errorf("got %s", r.path)
	}
	wantJSON(t, r.body, `{"channel":"C0123456789","thread_ts":"1700000000.000100","user":"U1","text":"Ana &lt;!channel&gt; answered first: *yes*","parse":"none","link_names":false}`)
	outcome{kind: "final", words: "channel_not_found"}.check(t, channel.Whisper(t.Context(), "C9", "", "U1", "x"))
	for _, bad := range [][3]string{{"", "", "U1"}, {"C1", "", ""}, {"C1", "x", "U1"}, {"#general", "", "U1"}, {"C1", "", "../x"}} {
		outcome{kind: "final", words: "nobody of this name"}.check(t, channel.Whisper(t.Context(), bad[0], bad[1], bad[2], "x"))
	}
}

// hostileText are pieces of texts that act on others, or pretend to be more than text.
var hostileText = []string{"<!channel>", "<!here|x>", "<@U123>", "<#C1>", "<https://evil.example|yes>", "&lt;!channel&gt;", "@everyone", "@here", "<@&1>", "<@123>", "</deploy:1>", "@alice", "@\u202aalice",
	"/start", "/close@bot", "*b*", "**b**", "__u__", "~~s~~", "||h||", "`c`", "```\n", "# big", "\n# big", "\n- x", "\n> q", "-# small", "[yes](https://evil.example)", "<b>", "<a href='tg://user?id=1'>", "{{x}}",
	"https://evil.example/a_b", "\\", "\n", "\r\n", "\x00", "\u202e", "\u200b", "\u2028", "\xff", "q_0197f5a0111172228333444455556666_3:1", "\"", "'", "},{", ":tada:", "é", "日本", "🎉", " ", "a", "yes", "1. "}

// Whatever a question has in it mentions nobody, formats nothing and makes no buttons, and buttons mean what they did.
func TestHostileQuestionsActOnNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	t.Parallel()
	const texts = 10_000
	random := rand.New(rand.NewPCG(30, 30))
	some := func(most int) (text string) {
		for range 1 + random.IntN(most) {
			text += hostileText[random.IntN(len(hostileText))]
		}
		return text
	}
	for _, b := range bots {
		check := checkAskedActs[b.name]
		if check == nil {
			continue
		}
		var last string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var body json.RawMessage
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			last = string(body)
			say(w, 200, b.ok)
		}))
		defer s.Close()
		channel := loadChannel(t, b.config(s.URL, token, "")).(questionChannel)
		for i := range texts {
			q := engine.ChannelQuestion{ID: engine.QuestionID(runID, i%engine.MaxQuestions), Text: "x" + some(14) + "x", Choices: []string{some(3), some(6), "no"}, Link: answerLink}
			posted, err := channel.Ask(t.Context(), b.to, q)
			if err != nil {
				t.Fatalf("%q: %v", q.Text, err)
			}
			check(t, q, last)
			if i%10 == 0 {
				if err := channel.Close(t.Context(), b.to, posted, q.Text); err != nil {
					t.Fatalf("%q: %v", q.Text, err)
				}
				check(t, engine.ChannelQuestion{ID: q.ID, Text: q.Text}, last)
			}
			if t.Failed() {
				return
			}
		}
	}
}

// checkAskedActs judges what is sent for a question on a service.
var checkAskedActs = map[string]func(t *testing.T, q engine.ChannelQuestion, body string){
	"slack": func(t *testing.T, q engine.ChannelQuestion, body string) {
		var sent struct {
			Text, Parse string
			LinkNames   bool `json:"link_names"`
			Mrkdwn      bool
			Blocks      []slackShown
		}
		mustDecode(t, body, &sent)
		shown, buttons, ok := readSlackBlocks(sent.Blocks)
		plain := strings.TrimSpace(strings.TrimSuffix(shown, strings.TrimSpace(linkLine("slack", "Or answer at"))))
		if !ok || sent.Parse != "none" || sent.LinkNames || sent.Mrkdwn || strings.ContainsAny(plain+sent.Text, "<>") || slackEntity.MatchString(plain+sent.Text) {
			t.Errorf("%q is sent as %s", q.Text, body)
		}
		if got, want := html.UnescapeString(plain), strings.TrimSpace(cleanText(q.Text)); got != want {
			t.Errorf("%q is shown as %q", want, got)
		}
		for i := range buttons {
			if strings.ContainsAny(buttons[i].label, "<>") || slackEntity.MatchString(buttons[i].label) {
				t.Errorf("a button is %q", buttons[i].label)
			}
			buttons[i].label = html.UnescapeString(buttons[i].label)
		}
		checkButtons(t, q, buttons)
	},
	"telegram": func(t *testing.T, q engine.ChannelQuestion, body string) {
		var sent struct {
			Text, ParseMode string
			Entities        []telegramEntity
			Markup          telegramMarkup  `json:"reply_markup"`
			Preview         telegramPreview `json:"link_preview_options"`
		}
		mustDecode(t, body, &sent)
		units := utf16.Encode([]rune(sent.Text))
		for _, e := range sent.Entities {
			if e.Type != "code" {
				t.Errorf("%q has an entity %s", q.Text, e.Type)
			}
			for i := range e.Length {
				units[e.Offset+i] = 'a' // as before: a letter
			}
		}
		if rest := string(utf16.Decode(units)); strings.Contains(body, "parse_mode") || !sent.Preview.Disabled || telegramMention.MatchString(rest) {
			t.Errorf("%q is sent as %s", q.Text, body)
		}
		var buttons []askedButton
		for _, b := range slices.Concat(sent.Markup.Keyboard...) {
			buttons = append(buttons, askedButton{b.Text, b.Data})
		}
		checkButtons(t, q, buttons)
	},
	"discord": func(t *testing.T, q engine.ChannelQuestion, body string) {
		var sent discordMessage
		mustDecode(t, body, &sent)
		plain := sent.Content
		if q.Link != "" {
			var ok bool
			if plain, ok = strings.CutSuffix(plain, linkLine("discord", "Or answer at")); !ok {
				t.Errorf("%q is sent without its link: %s", q.Text, body)
			}
		}
		want := strings.TrimSpace(cleanText(q.Text))
		if plain != escapeMarkdown(want) || sent.Mentions.Parse == nil || len(sent.Mentions.Parse) > 0 || sent.Flags != suppressEmbeds || sent.Rows == nil {
			t.Errorf("%q is sent as %s", q.Text, body)
		}
		var buttons []askedButton
		for _, row := range sent.Rows {
			for _, b := range row.Buttons {
				buttons = append(buttons, askedButton{b.Label, b.Data})
			}
		}
		checkButtons(t, q, buttons)
	},
}

var slackEntity = regexp.MustCompile(`&(?:[^alg]|amp[^;]|[lg]t[^;]|[lg][^t]|a[^m])`)

// checkButtons checks that there is a button for each choice, which means its number.
func checkButtons(t *testing.T, q engine.ChannelQuestion, buttons []askedButton) {
	t.Helper()
	if len(buttons) != len(q.Choices) {
		t.Fatalf("%q has %d buttons", q.Text, len(buttons))
	}
	for i, b := range buttons {
		if b.data != fmt.Sprintf("%s:%d", q.ID, i) || b.label == "" || utf8.RuneCountInString(b.label) > 60 || strings.ContainsAny(b.label, "\n\r\t\u202e\u200b\x00") {
			t.Errorf("choice %d %q is %q", i, q.Choices[i], b)
		}
	}
}

func mustDecode(t *testing.T, body string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), into); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
}

// FuzzAnswersToQuestions has a service answer anything. What comes of it fits into the store and can be closed.
func FuzzAnswersToQuestions(f *testing.F) {
	for _, b := range bots {
		f.Add(200, b.ok)
	}
	f.Add(200, `{"ok":true,"channel":"C1/../x","ts":"1.1"}`)
	f.Add(400, `{"ok":false,"error_code":400,"description":"Bad Request: message to edit not found"}`)
	f.Add(404, `{"code":10008}`)
	f.Add(500, `{"code":10008}`)
	f.Add(200, `{"ok":false,"error":"message_not_found"}`)
	var status int
	var body string
	s := startService(f, func(w http.ResponseWriter, _ request, _ int) { say(w, status, body) })
	f.Fuzz(func(t *testing.T, answered int, text string) {
		if answered < 200 || answered > 599 {
			return
		}
		status, body = answered, text
		for _, b := range bots {
			channel, ok := loadChannel(t, b.config(s.URL, token, "")).(questionChannel)
			if !ok {
				continue
			}
			posted, err := channel.Ask(t.Context(), b.to, mayDeploy)
			switch {
			case err != nil && (posted != "" || strings.Contains(err.Error(), token)), len(posted) > engine.MaxProgress, err == nil && answered > 299:
				t.Errorf("%s: %d %s gives %q, %v", b.name, answered, text, posted, err)
			case posted != "":
				if err := channel.Close(t.Context(), b.to, posted, "closed"); err != nil && strings.Contains(err.Error(), "no message") {
					t.Errorf("%s: %q cannot be closed", b.name, posted)
				}
			}
		}
		s.mu.Lock()
		s.requests = nil
		s.mu.Unlock()
	})
}
