package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// botKinds are the services whose recipes are bots.
var botKinds = map[string]botKind{
	"slack":    {channel: "slack xoxb-1", thread: "C123ABC456/1794808288.000016", event: slackEvent, api: slackAPI},
	"telegram": {channel: "telegram 42:token", thread: "1111111", event: telegramEvent, api: telegramAPI},
	"github":   {channel: "github ghp_1", thread: "octo/shop#7", headers: []string{"X-GitHub-Event", "issue_comment"}, event: githubEvent, api: githubAPI},
	"gitlab":   {channel: "gitlab glpat-1", thread: "octo/shop!7", headers: []string{"X-Gitlab-Event", "Note Hook"}, event: gitlabEvent, api: gitlabAPI},
	"linear":   {channel: "linear lin_api_1", thread: "539068e2-ae88-4d09-bd75-22eb4a59612f", event: linearEvent, api: linearAPI},
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
		case r.URL.Path == "/chat.postMessage" && call.Channel+"/"+call.Thread != s.kind.thread:
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

// GitHub: https://docs.github.com/rest/issues/comments and /webhooks/webhook-events-and-payloads#issue_comment.

func githubEvent(m *botMessage) string {
	user := object{"login": "ann", "id": 7, "type": "User"}
	if m.ofBot {
		user = object{"login": "octo-bot", "id": 42, "type": "User"}
	}
	action := "created"
	if len(m.texts) > 1 {
		action = "edited"
	}
	return asJSON(object{"action": action, "issue": object{"number": 7, "title": "The shop is down", "html_url": "https://github.com/octo/shop/issues/7",
		"user": object{"login": "ann", "type": "User"}, "labels": []any{}, "body": "Since noon."},
		"comment":    object{"id": m.number, "user": user, "body": "@octo-bot " + m.texts[len(m.texts)-1], "html_url": "https://github.com/octo/shop/issues/7#issuecomment-1"},
		"repository": object{"full_name": "octo/shop"}, "sender": user})
}

var githubComment = regexp.MustCompile(`^/repos/octo/shop/issues/comments/(\d+)$`)

func githubAPI(s *botService) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var call struct{ Body string }
		if r.ContentLength != 0 {
			s.readJSON(r, &call)
		}
		show := func(status int, m *botMessage) {
			writeAnswer(w, status, object{"id": m.number, "body": call.Body, "user": object{"login": "octo-bot", "type": "User"}})
		}
		var m *botMessage
		if parts := githubComment.FindStringSubmatch(r.URL.Path); parts != nil {
			m = s.find(parts[1])
		}
		switch request := r.Method + " " + r.URL.Path; {
		case r.Header.Get("Authorization") != "Bearer ghp_1":
			writeAnswer(w, 401, object{"message": "Bad credentials"})
		case request == "GET /user":
			writeAnswer(w, 200, object{"login": "octo-bot", "id": 42, "type": "User"})
		case request == "POST /repos/octo/shop/issues/7/comments":
			show(201, s.say(s.kind.thread, call.Body, true))
		case m == nil || !m.ofBot:
			writeAnswer(w, 404, object{"message": "Not Found"})
		case r.Method == "PATCH":
			s.edit(m, call.Body)
			show(200, m)
		case r.Method == "DELETE":
			s.remove(m)
			w.WriteHeader(http.StatusNoContent)
		default:
			writeAnswer(w, 404, object{"message": "Not Found"})
		}
	}
}

// GitLab: https://docs.gitlab.com/api/notes and /user/project/integrations/webhook_events#comment-events.

func gitlabEvent(m *botMessage) string {
	user := object{"id": 7, "username": "ann", "name": "Ann"}
	if m.ofBot {
		user = object{"id": 42, "username": "octo-bot", "name": "Bot"}
	}
	return asJSON(object{"object_kind": "note", "event_type": "note", "user": user, "project_id": 5,
		"project":           object{"id": 5, "path_with_namespace": "octo/shop", "web_url": "https://gitlab.example.com/octo/shop"},
		"object_attributes": object{"id": m.number, "note": "@octo-bot " + m.texts[len(m.texts)-1], "noteable_type": "MergeRequest", "author_id": user["id"], "url": "https://gitlab.example.com/octo/shop/-/merge_requests/7#note_1"},
		"merge_request":     object{"id": 11, "iid": 7, "title": "Mend the shop", "description": "Fixes #7."}})
}

var gitlabNote = regexp.MustCompile(`^(?:/api/v4)?/projects/octo%2Fshop/merge_requests/7/notes(?:/(\d+))?$`)

func gitlabAPI(s *botService) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var call struct{ Body string }
		if r.ContentLength > 0 {
			s.readJSON(r, &call)
		}
		var m *botMessage
		parts := gitlabNote.FindStringSubmatch(r.URL.EscapedPath())
		if parts != nil && parts[1] != "" {
			m = s.find(parts[1])
		}
		show := func(status int, m *botMessage) {
			writeAnswer(w, status, object{"id": m.number, "body": call.Body, "author": object{"id": 42, "username": "octo-bot"}})
		}
		switch {
		case r.Header.Get("PRIVATE-TOKEN") != "glpat-1":
			writeAnswer(w, 401, object{"message": "401 Unauthorized"})
		case r.Method == "GET" && strings.HasSuffix(r.URL.Path, "/user"):
			writeAnswer(w, 200, object{"id": 42, "username": "octo-bot"})
		case parts != nil && parts[1] == "" && r.Method == "POST":
			show(201, s.say(s.kind.thread, call.Body, true))
		case m == nil || !m.ofBot:
			writeAnswer(w, 404, object{"message": "404 Not found"})
		case r.Method == "PUT":
			s.edit(m, call.Body)
			show(200, m)
		case r.Method == "DELETE":
			s.remove(m)
			w.WriteHeader(http.StatusNoContent)
		default:
			writeAnswer(w, 404, object{"message": "404 Not found"})
		}
	}
}

// Linear: https://linear.app/developers/webhooks and the schema of its GraphQL API.

func linearEvent(m *botMessage) string {
	user := object{"id": "b5ea5f1f-8adc-4f52-b4bd-ab4e84cf51ba", "name": "Ann", "type": "user"}
	if m.ofBot {
		user = object{"id": "a5ea5f1f-8adc-4f52-b4bd-ab4e84cf51ba", "name": "Bot", "type": "user"}
	}
	action := "create"
	if len(m.texts) > 1 {
		action = "update"
	}
	return asJSON(object{"action": action, "type": "Comment", "actor": user, "url": "https://linear.app/issue/ENG-7#comment-1",
		"data": object{"id": linearID(m), "body": "@bot " + m.texts[len(m.texts)-1], "userId": user["id"], "issueId": "539068e2-ae88-4d09-bd75-22eb4a59612f",
			"issue": object{"id": "539068e2-ae88-4d09-bd75-22eb4a59612f", "title": "The shop is down", "identifier": "ENG-7"}},
		"webhookTimestamp": time.Now().UnixMilli()})
}

func linearID(m *botMessage) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", m.number) }

func linearAPI(s *botService) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Query     string
			Variables struct {
				ID, Body, Issue, IssueID string
				Input                    struct{ Body, IssueID string }
			}
		}
		s.readJSON(r, &call)
		body, issue := call.Variables.Input.Body+call.Variables.Body, call.Variables.Input.IssueID+call.Variables.IssueID+call.Variables.Issue
		id := call.Variables.ID
		m := s.find(strings.TrimLeft(id[min(len(id), 24):], "0"))
		done := func(field string, more object) { writeAnswer(w, 200, object{"data": object{field: more}}) }
		switch {
		case r.Header.Get("Authorization") != "lin_api_1":
			writeAnswer(w, 401, object{"errors": []any{object{"message": "Authentication required", "extensions": object{"type": "authentication error", "code": "AUTHENTICATION_ERROR"}}}})
		case strings.Contains(call.Query, "viewer"):
			done("viewer", object{"id": "a5ea5f1f-8adc-4f52-b4bd-ab4e84cf51ba"})
		case strings.Contains(call.Query, "commentCreate") && issue == s.kind.thread:
			m = s.say(s.kind.thread, body, true)
			done("commentCreate", object{"success": true, "comment": object{"id": linearID(m)}})
		case m == nil || !m.ofBot:
			writeAnswer(w, 200, object{"errors": []any{object{"message": "Entity not found: Comment", "extensions": object{"type": "invalid input", "code": "INPUT_ERROR"}}}})
		case strings.Contains(call.Query, "commentUpdate"):
			s.edit(m, body)
			done("commentUpdate", object{"success": true, "comment": object{"id": linearID(m)}})
		case strings.Contains(call.Query, "commentDelete"):
			s.remove(m)
			done("commentDelete", object{"success": true})
		default:
			writeAnswer(w, 400, object{"errors": []any{object{"message": "unknown"}}})
		}
	}
}
