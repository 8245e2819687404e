package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// botKinds are the services whose recipes are bots.
var botKinds = map[string]botKind{
	"slack":    {channel: "slack xoxb-1", thread: "C123ABC456/1794808288.000016", event: slackEvent, api: slackAPI},
	"discord":  {channel: "discord a-token", secret: discordSeed, thread: "645027906669510667", event: discordEvent, api: discordAPI},
	"telegram": {channel: "telegram 42:token", thread: "1111111", event: telegramEvent, api: telegramAPI},
	"github":   {channel: "github ghp_1", thread: "octo/shop#7", headers: []string{"X-GitHub-Event", "issue_comment"}, event: githubEvent, api: githubAPI},
	"gitlab":   {channel: "gitlab glpat-1", thread: "octo/shop!7", headers: []string{"X-Gitlab-Event", "Note Hook"}, event: gitlabEvent, api: gitlabAPI},
	"linear":   {channel: "linear lin_api_1", thread: "SHOP-42", event: linearEvent, api: linearAPI},
}

// asJSON encodes the body of an event.
func asJSON(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

type object = map[string]any

// Slack: https://docs.slack.dev/reference/events/message and /methods/chat.postMessage.

func slackEvent(m *botMessage) string {
	channel, thread, _ := strings.Cut(m.thread, "/")
	event := object{"type": "app_mention", "user": "U123ABC456", "text": "<@U0LAN0Z89> " + m.texts[len(m.texts)-1], "ts": slackTS(m), "thread_ts": thread, "channel": channel}
	if m.ofBot { // a message that mentions the app, by whatever accident
		event["user"], event["bot_id"] = "U0LAN0Z89", "B0LAN0Z89"
	}
	return asJSON(object{"type": "event_callback", "event_id": fmt.Sprintf("Ev%d.%d", m.number, len(m.texts)), "team_id": "T1", "event": event})
}

func slackTS(m *botMessage) string { return fmt.Sprintf("1794808300.%06d", m.number) }

func slackAPI(s *botService) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Channel, Text, TS string
			Thread            string `json:"thread_ts"`
		}
		s.readJSON(r, &call)
		refuse := func(why string) { writeAnswer(w, 200, object{"ok": false, "error": why}) }
		_, number, _ := strings.Cut(call.TS, ".")
		m := s.find(strings.TrimLeft(number, "0"))
		switch {
		case r.Header.Get("Authorization") != "Bearer xoxb-1":
			refuse("invalid_auth")
		case r.URL.Path == "/auth.test":
			writeAnswer(w, 200, object{"ok": true, "user_id": "U0LAN0Z89", "bot_id": "B0LAN0Z89"})
		case r.URL.Path == "/chat.postMessage" && (s.hasLostItsThread() || call.Channel+"/"+call.Thread != s.kind.thread):
			refuse("thread_not_found")
		case r.URL.Path == "/chat.postMessage":
			m = s.say(s.kind.thread, call.Text, true)
			writeAnswer(w, 200, object{"ok": true, "channel": call.Channel, "ts": slackTS(m), "message": object{"text": call.Text}})
		case m == nil || !m.ofBot:
			refuse("message_not_found")
		case r.URL.Path == "/chat.update":
			s.edit(m, call.Text)
			writeAnswer(w, 200, object{"ok": true, "channel": call.Channel, "ts": call.TS, "text": call.Text})
		case r.URL.Path == "/chat.delete":
			s.remove(m)
			writeAnswer(w, 200, object{"ok": true, "channel": call.Channel, "ts": call.TS})
		default:
			refuse("unknown_method")
		}
	}
}

// Telegram: https://core.telegram.org/bots/api. It sends a bot no events of its own messages; this one does.

func telegramEvent(m *botMessage) string {
	from := object{"id": 7, "is_bot": false, "first_name": "Ann"}
	if m.ofBot {
		from = object{"id": 42, "is_bot": true, "first_name": "Bot"}
	}
	return asJSON(object{"update_id": m.number*10 + len(m.texts), "message": object{"message_id": m.number, "date": 1794808288, "from": from,
		"chat": object{"id": 1111111, "type": "private"}, "text": m.texts[len(m.texts)-1]}})
}

func telegramAPI(s *botService) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Chat    any `json:"chat_id"`
			Text    string
			Message int `json:"message_id"`
		}
		method, ok := strings.CutPrefix(r.URL.Path, "/bot42:token/")
		if r.ContentLength != 0 {
			s.readJSON(r, &call)
		}
		result := func(v any) { writeAnswer(w, 200, object{"ok": true, "result": v}) }
		m := s.find(fmt.Sprint(call.Message))
		switch {
		case !ok:
			writeAnswer(w, 401, object{"ok": false, "error_code": 401, "description": "Unauthorized"})
		case method == "getMe":
			result(object{"id": 42, "is_bot": true, "first_name": "Bot"})
		case method == "sendMessage" && strings.TrimSuffix(fmt.Sprintf("%.0f", call.Chat), ".") == s.kind.thread || method == "sendMessage" && call.Chat == s.kind.thread:
			m = s.say(s.kind.thread, call.Text, true)
			result(object{"message_id": m.number, "date": 1794808288, "chat": object{"id": 1111111, "type": "private"}, "text": call.Text})
		case m == nil || !m.ofBot:
			writeAnswer(w, 400, object{"ok": false, "error_code": 400, "description": "Bad Request: message to edit not found"})
		case method == "editMessageText":
			s.edit(m, call.Text)
			result(object{"message_id": m.number, "date": 1794808288, "chat": object{"id": 1111111, "type": "private"}, "text": call.Text})
		case method == "deleteMessage":
			s.remove(m)
			result(true)
		default:
			writeAnswer(w, 404, object{"ok": false, "error_code": 404, "description": "Not Found"})
		}
	}
}

// Discord: https://docs.discord.com/developers/interactions/receiving-and-responding. Messages are no events: somebody uses the command /ask.

func discordEvent(m *botMessage) string {
	if m.ofBot {
		return ""
	}
	return asJSON(object{"id": fmt.Sprint(786008729715212338 + m.number), "application_id": "845027738276462632", "type": 2, "token": "a", "version": 1,
		"channel_id": m.thread, "member": object{"user": object{"id": "53908232506183680", "username": "ada"}},
		"data": object{"id": "771825006014889984", "type": 1, "name": "ask", "options": []any{object{"type": 3, "name": "question", "value": m.texts[0]}}}})
}

func discordAPI(s *botService) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var call struct{ Content string }
		if r.ContentLength > 0 {
			s.readJSON(r, &call)
		}
		path, number, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/channels/"+s.kind.thread), "/messages")
		m := s.find(strings.TrimPrefix(number, "/9000"))
		show := func(m *botMessage) {
			writeAnswer(w, 200, object{"id": fmt.Sprintf("9000%d", m.number), "channel_id": s.kind.thread, "content": call.Content})
		}
		switch {
		case r.Header.Get("Authorization") != "Bot a-token":
			writeAnswer(w, 401, object{"message": "401: Unauthorized", "code": 0})
		case r.URL.Path == "/users/@me":
			writeAnswer(w, 200, object{"id": "845027738276462632", "username": "bot", "bot": true})
		case path == "" && number == "" && r.Method == "POST":
			show(s.say(s.kind.thread, call.Content, true))
		case m == nil || !m.ofBot:
			writeAnswer(w, 404, object{"message": "Unknown Message", "code": 10008})
		case r.Method == "PATCH":
			s.edit(m, call.Content)
			show(m)
		case r.Method == "DELETE":
			s.remove(m)
			w.WriteHeader(http.StatusNoContent)
		default:
			writeAnswer(w, 404, object{"message": "404: Not Found", "code": 0})
		}
	}
}
