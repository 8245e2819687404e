package openapi

import (
	"net/http"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// ShownSettings are the settings in force, with secrets masked.
type ShownSettings struct {
	settings.Settings
	Token     *settings.Secrets       `json:"token"`               // masked, and null if there is none
	Mappings  []settings.ShownMapping `json:"mappings"`            // the custom hooks
	Pinned    []string                `json:"pinned"`              // the settings in Caddy's configuration, which can only be changed there
	Saved     []string                `json:"saved"`               // the settings that were saved while Caddy ran
	Problems  []string                `json:"problems,omitempty"`  // saved settings that are left out, with the reason
	Warnings  []string                `json:"warnings,omitempty"`  // probable mistakes
	Dismissed []string                `json:"dismissed,omitempty"` // those of them that an operator has dismissed
}

// SettingsPatch are the settings to change. null restores the default.
type SettingsPatch struct{ settings.Settings }

// AgainRequest says how runs are started again.
type AgainRequest struct {
	Deliver bool   `json:"deliver,omitempty"` // send the answer to the callback and the channel of the run
	ChatID  string `json:"chatId,omitempty"`  // start the run in another chat; of one run alone
}

// PauseRequest says what to pause.
type PauseRequest struct {
	What   string `json:"what"`             // "hook", "chat", "runner" or "all"
	Name   string `json:"name,omitempty"`   // of the hook, the chat or the runner
	Reason string `json:"reason,omitempty"` // shown to operators, at most 200 bytes
	Rate   string `json:"rate,omitempty"`   // how many of its runs start all the same, on each node, such as 10/s
}

// AnswerRequest answers a question.
type AnswerRequest struct {
	Answer string `json:"answer"` // one of the choices, if there are some
}

// DismissalRequest dismisses a warning.
type DismissalRequest struct {
	Reason string `json:"reason"` // shown to operators, at most 200 bytes
}

// PreviewRequest asks what a hook would make of a request.
type PreviewRequest struct {
	Mapping settings.Mapping `json:"mapping"`           // the hook, which need not be saved
	Payload string           `json:"payload,omitempty"` // the body of the request. Without one, an example of the sender is made.
	Headers http.Header      `json:"headers,omitempty"`
	Query   string           `json:"query,omitempty"`
}

// AdminError is the answer to a request that was refused or that failed.
type AdminError struct {
	Error string `json:"error"` // says what to do
}

// answered is the answer to an operator, with the ways in which a request fails.
func answered(status string, body content, headers ...string) []answer {
	return []answer{
		{status: status, body: body, headers: headers},
		{status: "4XX", text: "The request is wrong, or in conflict with the configuration or with a change of somebody else.",
			body: isJSON(AdminError{})},
		{status: "5XX", text: "The request failed.", body: isJSON(AdminError{}), headers: []string{"Retry-After"}},
	}
}

func health(id, path, summary string) operation {
	return operation{method: "GET", path: path, id: id, tag: "instance", summary: summary, global: true,
		answers: []answer{
			{status: "200", text: "It is.", body: isJSON(api.Health{})}, {status: "503", text: "It is not.", body: isJSON(api.Health{})},
			{status: "4XX", text: "The request is wrong.", body: isJSON(AdminError{})}}}
}

var payload = content{mediaJSON: anyJSON, "application/x-www-form-urlencoded": object{"type": "object"}}

// Operators is the API of operators, at Caddy's admin endpoint.
var Operators = &Document{
	title: "caddyhooks: admin API",
	text: "For operators, at Caddy's admin endpoint: runs, deliveries and settings. It has no login. Secrets are shown as " +
		"\u2022\u2022\u2022\u2022; sending that back keeps the secret.",
	servers: []any{
		object{"url": "{admin}/hooks", "description": "The instance default.",
			"variables": object{"admin": object{"default": "http://127.0.0.1:2019"}}},
		object{"url": "{admin}/hooks/instances/{instance}", "description": "Another instance.", "variables": object{
			"admin":    object{"default": "http://127.0.0.1:2019"},
			"instance": object{"default": "default", "description": "The name after the word hooks in the Caddyfile."}}},
	},
	security: []any{},
	tags: [][2]string{
		{"instance", "What runs, and how it is."}, {"settings", "Settings and custom hooks, changed while Caddy runs."},
		{"tries", "Try hooks and runners out."}, {"runs", "Runs and chats."}, {"deliveries", "Callbacks and messages to channels."},
		{"bulk", "Act on many runs or deliveries."},
	},
	operations: []operation{
		{method: "GET", path: "/about", id: "about", tag: "instance", summary: "Show what the instance is",
			answers: answered("200", isJSON(api.About{}))},
		{method: "GET", path: "/overview", id: "overview", tag: "instance", summary: "Show figures, plots, hooks and attention items",
			query: []string{"range"}, answers: answered("200", isJSON(api.Overview{}))},
		{method: "GET", path: "/events", id: "events", tag: "instance", summary: "Follow what happens", query: []string{"topics"},
			headers: []string{"Last-Event-ID"}, answers: answered("200", content{mediaEvents: someText})},
		health("health", "/health", "Whether all instances are ready"),
		health("ready", "/health/ready", "Whether all instances are ready, as /health does"),
		health("live", "/health/live", "Whether no instance needs a restart of Caddy"),
		{method: "GET", path: "/instances", id: "instances", tag: "instance", summary: "List all instances", global: true,
			answers: answered("200", isJSON([]string{}))},
		{method: "GET", path: "/backup", id: "backup", tag: "instance", summary: "Copy the store, with secrets",
			answers: answered("200", content{"application/octet-stream": someText})},
		{method: "GET", path: "/settings", id: "settings", tag: "settings", summary: "Show the settings in force",
			answers: answered("200", isJSON(ShownSettings{}), "ETag")},
		{method: "PATCH", path: "/settings", id: "changeSettings", tag: "settings", summary: "Change settings",
			text: "Members that only the answer has are ignored.", headers: []string{"If-Match", "Hooks-Operator"},
			body: isJSON(SettingsPatch{}), answers: answered("200", isJSON(ShownSettings{}), "ETag")},
		{method: "GET", path: "/mappings", id: "mappings", tag: "settings", summary: "List custom hooks",
			answers: answered("200", isJSON([]settings.ShownMapping{}))},
		{method: "GET", path: "/mappings/{name}", id: "mapping", tag: "settings", summary: "Show a custom hook",
			answers: answered("200", isJSON(settings.ShownMapping{}), "ETag")},
		{method: "PUT", path: "/mappings/{name}", id: "saveMapping", tag: "settings", summary: "Save a custom hook",
			headers: []string{"If-Match", "If-None-Match", "Hooks-Operator"}, body: isJSON(settings.Mapping{}),
			answers: answered("200", isJSON(settings.ShownMapping{}), "ETag")},
		{method: "DELETE", path: "/mappings/{name}", id: "deleteMapping", tag: "settings", summary: "Delete a custom hook",
			headers: []string{"If-Match", "Hooks-Operator"}, answers: answered("204", nil)},
		{method: "GET", path: "/changes", id: "changes", tag: "settings", summary: "List changes of settings and hooks, the newest first",
			query: []string{"limit", "cursor"}, answers: answered("200", isJSON(api.ChangesPage{}))},
		{method: "POST", path: "/preview", id: "preview", tag: "tries", summary: "Show the message that a hook would make",
			body: isJSON(PreviewRequest{}), answers: answered("200", isJSON(api.Preview{}))},
		{method: "GET", path: "/samples", id: "samples", tag: "tries", summary: "List the last requests to a hook", query: []string{"hook"},
			answers: answered("200", isJSON(api.Samples{}))},
		{method: "POST", path: "/mappings/{name}/sign", id: "sign", tag: "tries", summary: "Sign a payload as the sender does",
			query: []string{"headers", "query"}, body: payload, answers: answered("200", isJSON(api.Signature{}))},
		{method: "POST", path: "/mappings/{name}/test", id: "testHook", tag: "tries", summary: "Start a run of a hook that sends nothing out",
			query: []string{"headers", "query"}, headers: []string{"Hooks-Operator"}, body: payload,
			answers: answered("202", isJSON(api.Tested{}))},
		{method: "GET", path: "/runners", id: "runners", tag: "tries", summary: "List runners and their state",
			answers: answered("200", isJSON([]api.Runner{}))},
		{method: "POST", path: "/runners/{name}/try", id: "tryRunner", tag: "tries", summary: "Make one turn to test a runner",
			answers: answered("200", isJSON(api.RunnerTry{}))},
		{method: "GET", path: "/warnings", id: "warnings", tag: "settings", summary: "List warnings, also those that were dismissed",
			answers: answered("200", isJSON(api.WarningList{}))},
		{method: "PUT", path: "/warnings/{code}/dismissal", id: "dismissWarning", tag: "settings", summary: "Dismiss a warning",
			text:    "It is no attention item any more, until its text changes.",
			headers: []string{"Hooks-Operator"}, body: isJSON(DismissalRequest{}), answers: answered("200", isJSON(api.Warning{}))},
		{method: "DELETE", path: "/warnings/{code}/dismissal", id: "restoreWarning", tag: "settings", summary: "Bring a dismissed warning back",
			headers: []string{"Hooks-Operator"}, answers: answered("204", nil)},
		{method: "GET", path: "/pauses", id: "pauses", tag: "runs", summary: "List what is paused",
			answers: answered("200", isJSON(api.PauseList{}))},
		{method: "POST", path: "/pauses", id: "pause", tag: "runs", summary: "Pause a hook, a chat, a runner or everything",
			text:    "Runs are accepted and not started. With a rate, so many start all the same. It replaces the pause of the same thing.",
			headers: []string{"Hooks-Operator"}, body: isJSON(PauseRequest{}), answers: answered("200", isJSON(api.Pause{}))},
		{method: "DELETE", path: "/pauses", id: "resume", tag: "runs", summary: "Resume what is paused, at once",
			query: []string{"what", "name"}, headers: []string{"Hooks-Operator"}, answers: answered("204", nil)},
		{method: "GET", path: "/questions", id: "questions", tag: "runs", summary: "List open questions for people, the newest first",
			query: []string{"limit", "cursor"}, answers: answered("200", isJSON(api.QuestionsPage{}))},
		{method: "GET", path: "/questions/{id}", id: "question", tag: "runs", summary: "Show a question",
			answers: answered("200", isJSON(api.Question{}))},
		{method: "POST", path: "/questions/{id}", id: "answerQuestion", tag: "runs", summary: "Answer a question",
			text:    "A question is answered once. 409 tells the first answer.",
			headers: []string{"Hooks-Operator"}, body: isJSON(AnswerRequest{}), answers: answered("200", isJSON(api.Question{}))},
		{method: "GET", path: "/runs", id: "runs", tag: "runs", summary: "List runs, the newest first",
			query: append(append([]string(nil), api.RunFilters...), "limit", "cursor"), answers: answered("200", isJSON(api.RunsPage{}))},
		{method: "GET", path: "/runs/{id}", id: "run", tag: "runs", summary: "Show a run", answers: answered("200", isJSON(api.RunDetails{}))},
		{method: "POST", path: "/runs/{id}/cancel", id: "cancelRun", tag: "runs", summary: "Cancel a run", headers: []string{"Hooks-Operator"},
			answers: append(answered("200", isJSON(api.RunDetails{})),
				answer{status: "202", text: "The runner has not stopped yet.", body: isJSON(api.RunDetails{})})},
		{method: "POST", path: "/runs/{id}/again", id: "runAgain", tag: "runs", summary: "Start a run again that has ended",
			headers: []string{"Hooks-Operator"},
			body:    isJSON(AgainRequest{}), bodyOptional: true, answers: answered("202", isJSON(api.Started{}))},
		{method: "GET", path: "/cost", id: "cost", tag: "runs", summary: "Sum up what runs used: tokens and cost",
			text: "What cost most comes first, or the earliest hour or day.", query: []string{"since", "by", "hook"},
			answers: answered("200", isJSON(api.Costs{}))},
		{method: "GET", path: "/chats", id: "chats", tag: "runs", summary: "List chats, the one with the newest run first",
			query: []string{"q", "since", "limit", "cursor"}, answers: answered("200", isJSON(api.ChatsPage{}))},
		{method: "GET", path: "/chat", id: "chat", tag: "runs", summary: "List the runs of a chat, the newest first",
			query: []string{"chatId", "limit", "cursor"}, answers: answered("200", isJSON(api.ChatPage{}))},
		{method: "GET", path: "/tokens", id: "tokens", tag: "settings", summary: "List tokens and secrets with their last use",
			text: "The secrets themselves are not shown.", answers: answered("200", isJSON(api.TokenList{}))},
		{method: "GET", path: "/refused", id: "refused", tag: "runs", summary: "List requests that were refused or ignored",
			query: []string{"hook", "since", "until", "limit"}, answers: answered("200", isJSON(api.RefusedList{}))},
		{method: "GET", path: "/refused/requests", id: "refusedRequests", tag: "runs",
			summary: "List the refused or ignored requests that are kept",
			query:   []string{"hook", "since", "until", "limit"}, answers: answered("200", isJSON(api.RefusedRequestList{}))},
		{method: "GET", path: "/refused/requests/{id}", id: "refusedRequest", tag: "runs", summary: "Show a refused or ignored request",
			answers: answered("200", isJSON(api.RefusedRequestDetails{}))},
		{method: "GET", path: "/export", id: "export", tag: "runs", summary: "Export runs, a chat or deliveries",
			text:    "Lines of JSON, or CSV if Accept prefers text/csv. The other parameters are those of the list.",
			query:   []string{"of", "status", "hook", "runner", "chatId", "since", "until", "q", "requestId", "channel", "host"},
			answers: answered("200", content{"application/x-ndjson": someText, "text/csv": someText}, "Content-Disposition")},
		{method: "POST", path: "/bulk", id: "startBulk", tag: "bulk", summary: "Act on all runs or deliveries of a filter",
			text:    "again and cancel are for runs, retry and drop for deliveries.",
			query:   []string{"do", "dry", "status", "hook", "runner", "chatId", "since", "until", "q", "requestId", "channel", "host"},
			headers: []string{"Hooks-Operator"}, body: isJSON(AgainRequest{}), bodyOptional: true,
			answers: append(answered("202", isJSON(api.Bulk{})),
				answer{status: "200", text: "With dry: what it would do.", body: isJSON(api.BulkPlan{})})},
		{method: "GET", path: "/bulk", id: "bulks", tag: "bulk", summary: "List bulk actions, the newest first", query: []string{"limit"},
			answers: answered("200", isJSON(api.BulkList{}))},
		{method: "GET", path: "/bulk/{id}", id: "bulk", tag: "bulk", summary: "Show a bulk action",
			answers: answered("200", isJSON(api.Bulk{}))},
		{method: "POST", path: "/bulk/{id}/stop", id: "stopBulk", tag: "bulk", summary: "Stop a bulk action",
			headers: []string{"Hooks-Operator"}, answers: answered("200", isJSON(api.Bulk{}))},
		{method: "POST", path: "/bulk/{id}/resume", id: "resumeBulk", tag: "bulk", summary: "Go on with a bulk action that was stopped or failed",
			headers: []string{"Hooks-Operator"}, answers: answered("202", isJSON(api.Bulk{}))},
		{method: "GET", path: "/deliveries", id: "deliveries", tag: "deliveries", summary: "List deliveries, the newest first",
			query: slices.Concat(api.DeliveryFilters, []string{"limit", "cursor"}), answers: answered("200", isJSON(api.DeliveriesPage{}))},
		{method: "GET", path: "/deliveries/{id}", id: "delivery", tag: "deliveries", summary: "Show a delivery",
			answers: answered("200", isJSON(api.DeliveryDetails{}))},
		{method: "DELETE", path: "/deliveries/{id}", id: "dropDelivery", tag: "deliveries", summary: "Drop a delivery",
			headers: []string{"Hooks-Operator"}, answers: answered("204", nil)},
		{method: "POST", path: "/deliveries/{id}/retry", id: "retryDelivery", tag: "deliveries", summary: "Send a delivery again",
			query: []string{"unsent"}, headers: []string{"Hooks-Operator"}, answers: answered("200", isJSON(api.DeliveryDetails{}))},
	},
}
