package integration

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

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
		"object_attributes": object{"id": m.number, "note": "@octo-bot " + m.texts[len(m.texts)-1], "author_id": user["id"], "url": "https://gitlab.example.com/octo/shop/-/merge_requests/7#note_1"},
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
	return asJSON(object{"action": action, "type": "Comment", "actor": user, "url": "https://linear.app/issue/SHOP-42#comment-1",
		"data": object{"id": linearID(m), "body": "@bot " + m.texts[len(m.texts)-1], "userId": user["id"], "issueId": "539068e2-ae88-4d09-bd75-22eb4a59612f",
			"issue": object{"id": "539068e2-ae88-4d09-bd75-22eb4a59612f", "title": "The shop is down", "identifier": "SHOP-42"}},
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
