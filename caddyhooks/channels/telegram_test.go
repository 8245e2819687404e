package channels

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

// startTelegram starts a server that answers as api.telegram.org does. Chats have one topic.
func startTelegram(t *testing.T, token string) *service {
	var s *service
	s = startService(t, func(w http.ResponseWriter, r request, n int) {
		var body struct {
			Chat  any    `json:"chat_id"`
			Topic int    `json:"message_thread_id"`
			ID    int    `json:"message_id"`
			Text  string `json:"text"`

			Markup struct {
				Keyboard [][]telegramButton `json:"inline_keyboard"`
			} `json:"reply_markup"`
		}
		fail := func(status int, description string) {
			say(w, status, fmt.Sprintf(`{"ok":false,"error_code":%d,"description":%q}`, status, description))
		}
		err := json.Unmarshal([]byte(r.body), &body)
		text := utf16.Encode([]rune(body.Text))
		id := strconv.Itoa(body.ID)
		method, ok := strings.CutPrefix(r.path, "/bot"+token+"/")
		switch {
		case !ok || !slices.Contains([]string{"sendMessage", "editMessageText", "deleteMessage"}, method):
			fail(404, "Not Found")
		case r.method != "POST" || !strings.HasPrefix(r.header.Get("Content-Type"), "application/json") || err != nil:
			fail(400, "Bad Request: can't parse JSON object")
		case method == "deleteMessage" && s.remove(id):
			say(w, 200, `{"ok":true,"result":true}`)
		case method == "deleteMessage":
			fail(400, "Bad Request: message to delete not found")
		case strings.TrimSpace(body.Text) == "":
			fail(400, "Bad Request: message text is empty")
		case len(text) > 4096:
			fail(400, "Bad Request: message is too long")
		case method == "editMessageText" && s.text(id) == body.Text:
			fail(400, "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message")
		case method == "editMessageText" && !s.edit(id, body.Text):
			fail(400, "Bad Request: message to edit not found")
		case slices.ContainsFunc(slices.Concat(body.Markup.Keyboard...), func(b telegramButton) bool { return b.Text == "" || b.Data == "" || len(b.Data) > 64 }):
			fail(400, "Bad Request: BUTTON_DATA_INVALID")
		case method == "sendMessage" && body.Topic != 0 && body.Topic != 42:
			fail(400, "Bad Request: message thread not found")
		default:
			if method == "sendMessage" {
				id = strconv.Itoa(n)
				s.post(message{id, fmt.Sprintf("%.0f", body.Chat), strings.TrimPrefix(fmt.Sprint(body.Topic), "0"), body.Text})
			}
			var buttons []askedButton
			for _, b := range slices.Concat(body.Markup.Keyboard...) {
				buttons = append(buttons, askedButton{b.Text, b.Data})
			}
			s.postButtons(id, buttons)
			// Telegram escapes everything that is not ASCII.
			var escaped strings.Builder
			for _, unit := range text {
				fmt.Fprintf(&escaped, `\u%04x`, unit)
			}
			say(w, 200, fmt.Sprintf(`{"ok":true,"result":{"message_id":%s,"from":{"id":123456,"is_bot":true,"first_name":"Bot","username":"our_bot"},`+
				`"chat":{"id":-1001234567890,"title":"Team","type":"supergroup"},"date":1790000000,"text":"%s"}}`, id, &escaped))
		}
	})
	return s
}

func TestTelegramMessageOnTheWire(t *testing.T) {
	t.Parallel()
	const token = "123456:AAE-secret_token"
	for _, tc := range []struct{ to, text, want string }{
		{"-1001234567890", "Hello <b>*world*</b> & https://example.org", `{"chat_id":-1001234567890,"text":"Hello <b>*world*</b> & https://example.org","link_preview_options":{"is_disabled":true}}`},
		{"42", " \n\n a\r\nb\x00\u202e\u0333 ", `{"chat_id":42,"text":" a\nb","link_preview_options":{"is_disabled":true}}`},
		{"@our_channel", "x", `{"chat_id":"@our_channel","text":"x","link_preview_options":{"is_disabled":true}}`},
		{"-1001234567890/42", "x", `{"chat_id":-1001234567890,"message_thread_id":42,"text":"x","link_preview_options":{"is_disabled":true}}`},
		{"42", "😀 @alice, (@bob_1) mail@example.org @x", `{"chat_id":42,"text":"😀 @alice, (@bob_1) mail@example.org @x","entities":[` +
			`{"type":"code","offset":3,"length":6},{"type":"code","offset":12,"length":6}],"link_preview_options":{"is_disabled":true}}`},
	} {
		s := startTelegram(t, token)
		d := delivery(tc.to, tc.text)
		if err := loadChannel(t, "telegram "+token+" {\n url "+s.URL+"/\n}").Send(t.Context(), d); err != nil {
			t.Errorf("%s: %v", tc.to, err)
			continue
		}
		r := s.one()
		if r.method != "POST" || r.path != "/bot"+token+"/sendMessage" || r.query != "" || d.Sent != 1 {
			t.Errorf("got %s %s?%s", r.method, r.path, r.query)
		}
		r.wantHeaders(t, map[string]string{"Content-Type": "application/json; charset=utf-8", "User-Agent": "caddy-hooks"})
		wantJSON(t, r.body, tc.want)
	}
}

// Telegram takes for a mention what follows an @, whatever it has to leave out for it.
func TestTelegramMentionsNobody(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"@alice": "@alice", "(@alice)": "@alice", "@@alice": "@alice", "ü@alice": "@alice", "x@alice": "", "_@alice": "",
		"@\u202aalice": "@alice", "@al\u0333ice": "@alice", "\u202e@alice": "@alice", "@ alice": "", "@": "", "/start@alice": "",
		"@a@b": "", "@alice@bob": "@alice", "a @alice\n@bob": "@alice@bob",
	} {
		s := startTelegram(t, "1:hush")
		if err := loadChannel(t, "telegram 1:hush {\n url "+s.URL+"\n}").Send(t.Context(), delivery("42", text)); err != nil {
			t.Fatal(err)
		}
		var body telegramMessage
		if err := json.Unmarshal([]byte(s.one().body), &body); err != nil {
			t.Fatal(err)
		}
		units, got := utf16.Encode([]rune(body.Text)), ""
		for _, e := range body.Entities {
			if e.Type != "code" {
				t.Errorf("%q: got an entity %s", text, e.Type)
			}
			got += string(utf16.Decode(units[e.Offset : e.Offset+e.Length]))
		}
		if got != want {
			t.Errorf("%q: kept quiet are %q, want %q", text, got, want)
		}
	}

	if got := mentionsAsCode(strings.Repeat("@alice ", 100)); len(got) != 100 || got[99].Offset != 99*7 {
		t.Errorf("100 names are %d entities", len(got))
	}
	if got := mentionsAsCode("😀" + strings.Repeat("@alice ", 101)); len(got) != 1 || got[0] != (telegramEntity{"code", 0, 2 + 101*7}) {
		t.Errorf("101 names are %+v", got)
	}
}

func TestTelegramAnswersLongMessagesAtLength(t *testing.T) {
	t.Parallel()
	s := startTelegram(t, "1:hush")
	d := delivery("42", strings.Repeat("ä", 10_000))
	if err := loadChannel(t, "telegram 1:hush {\n url "+s.URL+"\n}").Send(t.Context(), d); err != nil || d.Sent != 3 {
		t.Errorf("got %v after %d parts", err, d.Sent)
	}
}

func TestTelegramErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		body   string
		want   outcome
	}{
		{429, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 35","parameters":{"retry_after":35}}`, outcome{"later", 35 * time.Second, "Telegram answered 429: it asks for a pause"}},
		{429, `{"ok":false,"error_code":429,"parameters":{"retry_after":-1}}`, outcome{"again", 0, "Telegram answered 429"}},
		{200, `{"ok":false,"error_code":429,"parameters":{"retry_after":5}}`, outcome{"later", 5 * time.Second, "Telegram answered 429"}},
		{200, `{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}`, outcome{"final", 0, "there is no such chat"}},
		{200, `{"ok":false,"error_code":500}`, outcome{"again", 0, "Telegram answered 500"}},
		{200, `{"ok":false,"error_code":1e99}`, outcome{"again", 0, "not what Telegram would say"}},
		{400, `{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}`, outcome{"final", 0, "Telegram answered 400: there is no such chat, or the bot has never been in it"}},
		{400, `{"ok":false,"error_code":400,"description":"Bad Request: group chat was upgraded to a supergroup chat","parameters":{"migrate_to_chat_id":-1001234567890}}`,
			outcome{"final", 0, "Telegram answered 400: the group has become a supergroup; its id is -1001234567890 now"}},
		{400, `{"ok":false,"error_code":400,"parameters":{"migrate_to_chat_id":"inner words"}}`, outcome{"final", 0, "Telegram answered 400"}},
		{400, `{"ok":false,"error_code":400,"description":"Bad Request: message thread not found"}`, outcome{"final", 0, "no such topic"}},
		{400, `{"ok":false,"error_code":400,"description":"Bad Request: TOPIC_CLOSED"}`, outcome{"final", 0, "topic is closed"}},
		{400, `{"ok":false,"error_code":400,"description":"Bad Request: not enough rights to send text messages to the chat"}`, outcome{"final", 0, "may not write"}},
		{400, `{"ok":false,"error_code":400,"description":"inner words"}`, outcome{"final", 0, "Telegram answered 400"}},
		{401, `{"ok":false,"error_code":401,"description":"Unauthorized"}`, outcome{"final", 0, "does not take the token"}},
		{403, `{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}`, outcome{"final", 0, "the user has blocked the bot"}},
		{403, `{"ok":false,"error_code":403,"description":"Forbidden: bot was kicked from the supergroup chat"}`, outcome{"final", 0, "removed from the chat"}},
		{403, `{"ok":false,"error_code":403,"description":"Forbidden: bot is not a member of the channel chat"}`, outcome{"final", 0, "not a member"}},
		{403, `{"ok":false,"error_code":403,"description":"Forbidden: user is deactivated"}`, outcome{"final", 0, "deactivated"}},
		{403, `{"ok":false,"error_code":403,"description":"Forbidden: bot can't initiate conversation with a user"}`, outcome{"final", 0, "write to the bot first"}},
		{404, `{"ok":false,"error_code":404,"description":"Not Found"}`, outcome{"final", 0, "the url or the token of this channel is wrong"}},
		{500, `{"ok":false,"error_code":500,"description":"Internal Server Error"}`, outcome{"again", 0, "Telegram answered 500"}},
		{502, `<html>Bad Gateway</html>`, outcome{"again", 0, "Telegram answered 502"}},
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) { say(w, tc.status, tc.body) })
		d := delivery("42", "x")
		err := loadChannel(t, "telegram 1:hush {\n url "+s.URL+"\n}").Send(t.Context(), d)
		tc.want.check(t, err)
		if strings.Contains(err.Error(), "inner") || d.Sent != 0 || d.LastStatus != tc.status {
			t.Errorf("got %v, noted the status %d", err, d.LastStatus)
		}
	}
	s := startTelegram(t, "1:y")
	outcome{kind: "final", words: "token"}.check(t, loadChannel(t, "telegram 1:hush {\n url "+s.URL+"\n}").Send(t.Context(), delivery("42", "x")))
}

func TestTelegramChats(t *testing.T) {
	t.Parallel()
	channel := new(Telegram)
	for _, to := range []string{"1", "-1", "123456789", "-1001234567890", "9223372036854775807", "-9223372036854775808", "@abcde", "@Our_Channel_1",
		"@" + strings.Repeat("a", 32), "-1001234567890/1", "@our_channel/42"} {
		if err := channel.ValidTo(to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, to := range []string{"", "0", "-0", "+1", "01", "1.5", "1e5", "0x1", "9223372036854775808", "-", "@", "@abcd", "@" + strings.Repeat("a", 33), "@abc-de",
		"@äbcde", "abcde", "1/", "1/0", "1/-1", "1/x", "1/2/3", "/1", "@abcde/", " 1", "1 ", "1\n", "①", "https://t.me/x"} {
		if err := channel.ValidTo(to); err == nil || !strings.Contains(err.Error(), "@our_channel") {
			t.Errorf("%q: %v", to, err)
		}
	}
}
