package channels

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// startSlack starts a server that answers as slack.com does, where one channel exists, and a user, whose direct messages are D0123456789.
func startSlack(t *testing.T, token string) *service {
	var s *service
	s = startService(t, func(w http.ResponseWriter, r request, n int) {
		var body struct {
			Channel, Text, TS string
			Thread            string `json:"thread_ts"`
			Blocks            []slackShown
		}
		method, _ := strings.CutPrefix(r.path, "/api/")
		err := json.Unmarshal([]byte(r.body), &body)
		if body.Channel == "U0123456789" && method == "chat.postMessage" {
			body.Channel = "D0123456789"
		}
		switch {
		case !slices.Contains([]string{"chat.postMessage", "chat.update", "chat.delete", "chat.postEphemeral", "auth.test"}, method):
			say(w, 200, `{"ok":false,"error":"unknown_method","req_method":"x"}`)
		case r.header.Get("Authorization") != "Bearer "+token:
			say(w, 200, `{"ok":false,"error":"invalid_auth"}`)
		case r.method != "POST" || r.header.Get("Content-Type") != "application/json; charset=utf-8" || err != nil:
			say(w, 200, `{"ok":false,"error":"invalid_json"}`)
		case method == "auth.test":
			say(w, 200, `{"ok":true,"url":"https://team.slack.com/","team":"Team","user":"agent","team_id":"T0123456789","user_id":"U0AGENT","bot_id":"B0AGENT","is_enterprise_install":false}`)
		case body.Channel != "C0123456789" && body.Channel != "D0123456789":
			say(w, 200, `{"ok":false,"error":"channel_not_found"}`)
		case method == "chat.delete" && s.remove(body.TS):
			say(w, 200, fmt.Sprintf(`{"ok":true,"channel":%q,"ts":%q}`, body.Channel, body.TS))
		case method == "chat.delete":
			say(w, 200, `{"ok":false,"error":"message_not_found"}`)
		case strings.TrimSpace(body.Text) == "":
			say(w, 200, `{"ok":false,"error":"no_text"}`)
		case method == "chat.update":
			shown, buttons, ok := readSlackBlocks(body.Blocks)
			if !ok {
				say(w, 200, `{"ok":false,"error":"invalid_blocks"}`)
				return
			}
			if !s.edit(body.TS, shown) {
				say(w, 200, `{"ok":false,"error":"message_not_found"}`)
				return
			}
			s.postButtons(body.TS, buttons)
			say(w, 200, fmt.Sprintf(`{"ok":true,"channel":%q,"ts":%q,"text":"x"}`, body.Channel, body.TS))
		case body.Thread != "" && body.Thread != "1700000000.000100":
			say(w, 200, `{"ok":false,"error":"thread_not_found"}`)
		case method == "chat.postEphemeral":
			say(w, 200, `{"ok":true,"message_ts":"1502210682.580145"}`)
		default:
			ts := fmt.Sprintf("1503435956.%06d", n)
			if len(body.Blocks) > 0 {
				shown, buttons, ok := readSlackBlocks(body.Blocks)
				if !ok {
					say(w, 200, `{"ok":false,"error":"invalid_blocks"}`)
					return
				}
				body.Text = shown
				s.postButtons(ts, buttons)
			}
			s.post(message{ts, body.Channel, body.Thread, body.Text})
			text, _ := json.Marshal(body.Text)
			say(w, 200, fmt.Sprintf(`{"ok":true,"channel":%q,"ts":%q,"message":{"user":"U1","type":"message","ts":%q,`+
				`"bot_id":"B1","app_id":"A1","text":%s,"team":"T1","blocks":[{"type":"rich_text","block_id":"x","elements":[{"type":"rich_text_section",`+
				`"elements":[{"type":"text","text":%s}]}]}]}}`, body.Channel, ts, ts, text, text))
		}
	})
	return s
}

// slackShown is a block, with the parts that are used here.
type slackShown struct {
	Type     string
	Text     struct{ Type, Text string }
	Elements []struct {
		Type   string
		Text   any // an object, or a text
		Value  string
		Action string `json:"action_id"`
	}
}

// readSlackBlocks reads what blocks show, within the limits of Slack.
func readSlackBlocks(blocks []slackShown) (shown string, buttons []askedButton, ok bool) {
	actions := map[string]bool{}
	for _, block := range blocks {
		switch block.Type {
		case "section":
			if n := utf8.RuneCountInString(block.Text.Text); n == 0 || n > 3000 || block.Text.Type != "plain_text" {
				return "", nil, false
			}
			shown += block.Text.Text + "\n"
		case "actions":
			if len(block.Elements) == 0 || len(block.Elements) > 25 {
				return "", nil, false
			}
			for _, e := range block.Elements {
				text, _ := e.Text.(map[string]any)
				label, _ := text["text"].(string)
				if n := utf8.RuneCountInString(label); e.Type != "button" || text["type"] != "plain_text" || n == 0 || n > 75 || len(e.Value) > 2000 || actions[e.Action] || len(e.Action) > 255 {
					return "", nil, false
				}
				actions[e.Action] = true
				buttons = append(buttons, askedButton{label, e.Value})
			}
		case "context":
			text, _ := block.Elements[0].Text.(string)
			if len(block.Elements) != 1 || block.Elements[0].Type != "mrkdwn" || len(text) > 3000 {
				return "", nil, false
			}
			shown += text + "\n"
		default:
			return "", nil, false
		}
	}
	return strings.TrimSpace(shown), buttons, true
}

func TestSlackMessageOnTheWire(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Hello":                              "Hello",
		"<!channel> <@U123> <!here|x> & *b*": "&lt;!channel&gt; &lt;@U123&gt; &lt;!here|x&gt; &amp; *b*",
		"&lt;!channel&gt;":                   "&amp;lt;!channel&amp;gt;",
		"<https://example.org|click>\x00":    "&lt;https://example.org|click&gt;",
	} {
		s := startSlack(t, "xoxb-1-secret")
		d := delivery("C0123456789", text)
		if err := loadChannel(t, "slack xoxb-1-secret {\n url "+s.URL+"/api\n}").Send(t.Context(), d); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		r := s.one()
		if r.method != "POST" || r.path != "/api/chat.postMessage" || r.query != "" || d.Sent != 1 {
			t.Errorf("got %s %s?%s", r.method, r.path, r.query)
		}
		r.wantHeaders(t, map[string]string{"Content-Type": "application/json; charset=utf-8", "User-Agent": "caddy-hooks", "Authorization": "Bearer xoxb-1-secret"})
		encoded, _ := json.Marshal(want)
		wantJSON(t, r.body, `{"channel":"C0123456789","text":`+string(encoded)+`,"mrkdwn":false,"parse":"none","link_names":false,"unfurl_links":false,"unfurl_media":false}`)
		if strings.Contains(r.body, `\u0026`) {
			t.Errorf("escaped for no reason: %s", r.body)
		}
	}
}

func TestSlackErrors(t *testing.T) {
	t.Parallel()
	final := func(words string) outcome { return outcome{kind: "final", words: words} }
	again := func(words string) outcome { return outcome{kind: "later", after: 9 * time.Second, words: words} }
	for code, want := range map[string]outcome{
		"channel_not_found": final("Slack answered channel_not_found: there is no such channel, or the app has not been invited to it"),
		"thread_not_found":  final("Slack answered thread_not_found: there is no such thread in the channel"), "message_not_found": final("no such thread"), "cannot_reply_to_message": final("no thread can begin"),
		"not_in_channel": final("not been invited"), "is_archived": final("archived"), "missing_scope": final("chat:write"),
		"invalid_auth": final("token"), "not_authed": final("token"), "token_revoked": final("revoked"), "account_inactive": final("revoked"), "token_expired": final("expired"),
		"no_permission": final("may not post"), "restricted_action": final("does not let"), "msg_too_long": final("Slack answered msg_too_long"),
		"no_text": final("no_text"), "ekm_access_denied": final("does not let"), "a_new_error": final("Slack answered a_new_error"), "not_allowed_token_type": final("bot"),
		"ratelimited": again("pause"), "rate_limited": again("pause"), "message_limit_exceeded": again("message_limit_exceeded"),
		"internal_error": again("internal_error"), "fatal_error": again("fatal_error"), "service_unavailable": again("service_unavailable"),
		"request_timeout": again("request_timeout"), "team_added_to_org": again("team_added_to_org"), "org_login_required": again("org_login_required"),
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
			w.Header().Set("Retry-After", "9")
			say(w, 200, `{"ok":false,"error":"`+code+`"}`)
		})
		d := delivery("C0123456789", "x")
		want.check(t, loadChannel(t, "slack hush-1 {\n url "+s.URL+"\n}").Send(t.Context(), d))
		if d.Sent != 0 || d.LastStatus != 200 || !strings.Contains(d.LastAnswer, code) {
			t.Errorf("%s: noted: %+v", code, d)
		}
	}
	for _, tc := range []struct {
		status int
		body   string
		want   outcome
	}{
		{429, `{"ok":false,"error":"ratelimited"}`, outcome{"later", 9 * time.Second, "Slack answered ratelimited: it asks for a pause"}},
		{429, ``, outcome{"later", 9 * time.Second, "Slack answered 429: it asks for a pause"}},
		{500, `{"ok":false,"error":"fatal_error"}`, outcome{"later", 9 * time.Second, "fatal_error"}},
		{404, `{"ok":false,"error":"internal_error"}`, outcome{"final", 0, "internal_error"}},
		{200, `{"ok":false,"error":"Inner words, not a code"}`, outcome{"later", 9 * time.Second, "not what Slack would say"}},
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
			w.Header().Set("Retry-After", "9")
			say(w, tc.status, tc.body)
		})
		tc.want.check(t, loadChannel(t, "slack hush-1 {\n url "+s.URL+"\n}").Send(t.Context(), delivery("C0123456789", "x")))
	}
	s := startSlack(t, "hush-2")
	outcome{kind: "final", words: "invalid_auth"}.check(t, loadChannel(t, "slack hush-1 {\n url "+s.URL+"/api\n}").Send(t.Context(), delivery("C0123456789", "x")))
	outcome{kind: "final", words: "channel_not_found"}.check(t, loadChannel(t, "slack hush-2 {\n url "+s.URL+"/api\n}").Send(t.Context(), delivery("C9", "x")))
}

func TestSlackChats(t *testing.T) {
	t.Parallel()
	channel := new(Slack)
	for _, to := range []string{"C0123456789", "G0123456789", "D0123456789", "U0123456789", "W0123456789", "#general", "#team-a_1", "#büro", "#日本", "#" + strings.Repeat("a", 80),
		"C0123456789/1700000000.000100", "D1/1.1", "U0123456789/1700000000.0001"} {
		if err := channel.ValidTo(to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, to := range []string{"", "C", "c0123456789", "X0123456789", "C01234-6789", "general", "#", "#General", "# general", "#a b", "@alice", "#" + strings.Repeat("a", 81),
		"C0123456789\n", "<!channel>", "#<!channel>", "C" + strings.Repeat("1", 50),
		"C0123456789/", "C0123456789/1700000000", "C0123456789/1700000000.", "C0123456789/.1", "C0123456789/1700000000.0001000", "#general/1700000000.000100", "C0123456789/1700000000.000100/1",
		"C0123456789/1700000000.000100\n", "C0123456789/１.1", "C0123456789/../x", "C0123456789%2f1.1"} {
		if err := channel.ValidTo(to); err == nil || !strings.Contains(err.Error(), "#general") {
			t.Errorf("%q: %v", to, err)
		}
	}
}
