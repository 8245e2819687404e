package clicks

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

const (
	question = "q_0197f5a0111172228333444455556666_3"

	slackPayload = `{"type":"block_actions","user":{"id":"U012","username":"ana","name":"ana.maria","team_id":"T1"},"api_app_id":"A1","token":"x",
		"container":{"type":"message","message_ts":"1700000000.000200","channel_id":"C0123456789","is_ephemeral":false,"thread_ts":"1700000000.000100"},
		"trigger_id":"1.2.3","team":{"id":"T1","domain":"team"},"enterprise":null,"is_enterprise_install":false,"channel":{"id":"C0123456789","name":"general"},
		"message":{"bot_id":"B1","type":"message","text":"May it?","user":"U0AGENT","ts":"1700000000.000200","thread_ts":"1700000000.000100"},"state":{"values":{}},
		"response_url":"https://hooks.slack.com/actions/T1/1/x","actions":[{"action_id":"` + question + `:1","block_id":"b","text":{"type":"plain_text","text":"no","emoji":false},
		"value":"` + question + `:1","type":"button","action_ts":"1700000001.000000"}]}`

	telegramUpdate = `{"update_id":7,"callback_query":{"id":"4382bfdwdsb323b2d9","from":{"id":1111,"is_bot":false,"first_name":"Ana","last_name":"María","username":"ana_m"},
		"message":{"message_id":7,"from":{"id":123,"is_bot":true,"first_name":"Bot"},"chat":{"id":-1001234567890,"title":"Team","type":"supergroup","username":"Our_Channel"},
		"date":1790000000,"message_thread_id":42,"text":"May it?"},"chat_instance":"-1","data":"` + question + `:1"}}`

	discordInteraction = `{"app_permissions":"1","application_id":"845","channel":{"id":"123456789012345678","type":0},"channel_id":"123456789012345678","data":{"component_type":2,"custom_id":"` + question + `:1","id":3},
		"guild_id":"1","id":"846","locale":"en-US","member":{"nick":"Ana M.","user":{"id":"530000000000000000","username":"ana","global_name":"Ana"},"roles":[]},
		"message":{"id":"1300000000000000000","content":"May it?","author":{"id":"1","bot":true}},"token":"t","type":3,"version":1}`
)

func slackForm(payload string) string { return "payload=" + url.QueryEscape(payload) }

// bodyOf is a click of each service.
var bodyOf = map[string]string{"slack": slackForm(slackPayload), "telegram": telegramUpdate, "discord": discordInteraction}

func TestClicksAreRead(t *testing.T) {
	t.Parallel()
	for service, want := range map[string]Click{
		"slack":    {Chat: "C0123456789", Chats: []string{"C0123456789", "#general"}, Thread: "1700000000.000100", Person: "U012", Name: "ana.maria"},
		"telegram": {Chat: "-1001234567890", Chats: []string{"-1001234567890", "@Our_Channel"}, Person: "1111", Name: "Ana María"},
		"discord":  {Chat: "123456789012345678", Chats: []string{"123456789012345678"}, Person: "530000000000000000", Name: "Ana M."},
	} {
		c := Parse(service, []byte(bodyOf[service]))
		if c == nil {
			t.Errorf("%s: it is no click", service)
			continue
		}
		if c.Service != service || c.Question != question || c.Choice != 1 || c.Chat != want.Chat || !slices.Equal(c.Chats, want.Chats) || c.Thread != want.Thread ||
			c.Person != want.Person || c.Name != want.Name {
			t.Errorf("%s: got %+v", service, c)
		}
		for other := range bodyOf {
			if other != service && Parse(other, []byte(bodyOf[service])) != nil {
				t.Errorf("a click of %s is one of %s", service, other)
			}
		}
		if Parse("github", []byte(bodyOf[service])) != nil {
			t.Error("GitHub has buttons")
		}
	}
}

func TestChatsOfClicks(t *testing.T) {
	t.Parallel()
	dm := strings.NewReplacer(`"C0123456789","name":"general"`, `"D0123456789","name":"directmessage"`).Replace(slackPayload)
	for _, tc := range []struct {
		service, body, in, notIn string
	}{
		{"slack", slackForm(slackPayload), "C0123456789 C0123456789/1700000000.000100 #general", "C9 U012 #other D0123456789 /x"},
		{"slack", slackForm(dm), "D0123456789 U012", "U013 #directmessage C0123456789"},
		{"telegram", telegramUpdate, "-1001234567890 -1001234567890/7 @our_channel @Our_Channel/42", "1001234567890 1111 @ana_m @ /"},
		{"telegram", strings.ReplaceAll(telegramUpdate, `"message":{`, `"other":{`), "", "-1001234567890 @ /"},
		{"discord", discordInteraction, "123456789012345678", "123456789012345679 1"},
	} {
		c := Parse(tc.service, []byte(tc.body))
		if c == nil {
			t.Fatalf("%s is no click", tc.body)
		}
		for _, to := range strings.Fields(tc.in) {
			if !c.IsIn(to) {
				t.Errorf("%q is not in %s", c.Chats, to)
			}
		}
		for _, to := range append(strings.Fields(tc.notIn), "") {
			if c.IsIn(to) {
				t.Errorf("%q is in %s", c.Chats, to)
			}
		}
	}
}

// What is not a click on our buttons is an event like others.
func TestOtherEventsAreNoClicks(t *testing.T) {
	t.Parallel()
	replaced := func(body, before, after string) string {
		if !strings.Contains(body, before) {
			t.Fatalf("%s is not in %s", before, body)
		}
		return strings.ReplaceAll(body, before, after)
	}
	for service, body := range map[string]string{"slack": slackPayload, "telegram": telegramUpdate, "discord": discordInteraction} {
		bodies := []string{"", "{}", "null", "[]", body + "x", body[1:], strings.Repeat(" ", maxBody) + body}
		for _, data := range []string{"approve", "q_", question, question + ":", question + ":-1", question + ":01", question + ":+1", question + ":1:1", question + ": 1", question + ":99999999999999999999",
			"q_0197f5a0111172228333444455556666_50:1", "q_0197f5a0111172228333444455556666_03:1", "Q_0197f5a0111172228333444455556666_3:1", "x" + question + ":1", question + ":1\\n"} {
			bodies = append(bodies, replaced(body, question+":1", data))
		}
		switch service {
		case "slack":
			bodies = append(bodies, replaced(body, "block_actions", "view_submission"), replaced(body, `"type":"button"`, `"type":"overflow"`), replaced(body, `"id":"U012"`, `"id":""`),
				replaced(body, `"id":"U012"`, `"id":"../x"`), replaced(body, `"actions":[`, `"actions":[{},`), replaced(body, `"actions":[`, `"other":[`), replaced(body, `"id":"C0123456789"`, `"id":"C1 C2"`))
		case "telegram":
			bodies = append(bodies, replaced(body, "callback_query", "other"), replaced(body, `"id":1111`, `"id":null`), replaced(body, `"id":1111`, `"id":1.5`),
				`{"update_id":1,"message":{"text":"`+question+`:1","from":{"id":1},"chat":{"id":1}}}`)
		case "discord":
			bodies = append(bodies, replaced(body, `"type":3`, `"type":2`), replaced(body, `"type":3`, `"type":1`), replaced(body, `"type":3`, `"type":"x"`), replaced(body, `"type":3`, `"type":3,"event":{}`),
				replaced(body, `"user":{"id"`, `"user":{"xx"`))
		}
		for _, body := range bodies {
			if service == "slack" {
				if Parse(service, []byte(body)) != nil {
					t.Errorf("slack: JSON is a click: %.200s", body)
				}
				body = slackForm(body)
			}
			if c := Parse(service, []byte(body)); c != nil {
				t.Errorf("%s: %+v is a click: %.300s", service, c, body)
			}
		}
	}
	if Parse("slack", []byte(slackForm(slackPayload)+"&x=1")) != nil {
		t.Error("a form with more fields is a click")
	}
}

func TestNamesOfPeopleAreShort(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Ana": "Ana", " a\n b\t": "a b", "\u202eana\u200b\x00": "ana", "\xff\xfea": "a", strings.Repeat("ä", 61): strings.Repeat("ä", 59) + "…", "": "", "日本 太郎": "日本 太郎",
	} {
		if got := OneLine(name); got != want {
			t.Errorf("%q is shown as %q", name, got)
		}
	}
}

func TestReplies(t *testing.T) {
	t.Parallel()
	const text = `Ana_*m* [x](https://evil.example) <@1> @everyone answered first: "yes".`
	for service, want := range map[string]string{
		"slack":    "",
		"telegram": `{"method":"answerCallbackQuery","callback_query_id":"4382bfdwdsb323b2d9","text":"Ana_*m* [x](https://evil.example) <@1> @everyone answered first: \"yes\".","show_alert":true}`,
		"discord": `{"type":4,"data":{"content":"Ana\\_\\*m\\* \\[x\\]\\(https:\\/\\/evil.example\\) \\<\\@1\\> \\@everyone answered first: \"yes\".","flags":64,` +
			`"allowed_mentions":{"parse":[]}}}`,
	} {
		if got := string(Parse(service, []byte(bodyOf[service])).Reply(text, true)); got != want {
			t.Errorf("%s: got %s", service, got)
		}
	}
}

func fuzzParser(f *testing.F, service string, seeds ...string) {
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		c := Parse(service, []byte(body))
		if c == nil {
			return
		}
		if _, _, ok := engine.ParseQuestionID(c.Question); !ok || c.Choice < 0 || !anID.MatchString(c.Person) || c.Chat != "" && !anID.MatchString(c.Chat) {
			t.Errorf("%q is %+v", body, c)
		}
		if !utf8.ValidString(c.Name) || utf8.RuneCountInString(c.Name) > maxLine || strings.ContainsAny(c.Name, "\r\n\x00") || c.IsIn("") || c.IsIn("/x") {
			t.Errorf("%q is %+v", body, c)
		}
		if data := ButtonData(c.Question, c.Choice); len(data) > 64 {
			t.Errorf("the data %q is too long for Telegram", data)
		}
		if reply := c.Reply("You answered yes.", false); reply != nil && !json.Valid(reply) {
			t.Errorf("%q is answered %s", body, reply)
		}
	})
}

func FuzzParseSlack(f *testing.F) {
	fuzzParser(f, "slack", slackForm(slackPayload), "payload=%7B%22type%22%3A%22block_actions%22%7D", "payload=q_", slackPayload)
}

func FuzzParseTelegram(f *testing.F) {
	fuzzParser(f, "telegram", telegramUpdate, `{"callback_query":{"data":"`+question+`:0","from":{"id":1}}}`, `{"callback_query":[]}`)
}

func FuzzParseDiscord(f *testing.F) {
	fuzzParser(f, "discord", discordInteraction, `{"type":3,"data":{"custom_id":"`+question+`:0"},"user":{"id":"1"}}`, `{"type":3,"data":[]}`)
}
