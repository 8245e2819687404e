package openapi

import (
	"encoding/json"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners"
)

// WakeRequest is an event that an agent should know of.
type WakeRequest struct {
	// The text of the event. The agent gets it marked as data from outside.
	Text string `json:"text"`

	// The chat of the run. Default: webhook:default.
	ChatID string `json:"chatId,omitempty"`

	// An object that the runner gets with the message.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// AgentRequest is a full turn of an agent.
type AgentRequest struct {
	// The prompt.
	Message string `json:"message"`

	// A name for the run.
	Name string `json:"name,omitempty"`

	settings.AgentFields
}

// Accepted is the answer to a request that became runs, or that was ignored.
type Accepted struct {
	Status  string        `json:"status"`            // "accepted", or "ignored" if a condition of the hook does not hold
	RunID   string        `json:"runId,omitempty"`   // the run of an agent
	ChatID  string        `json:"chatId,omitempty"`  // the chat
	Runs    []api.Started `json:"runs,omitempty"`    // the runs of a hook with each, or of a batch of events
	ChatIDs []string      `json:"chatIds,omitempty"` // the chats of a wake hook with each, or of a batch of events
}

// Error is the answer to a request that was refused or that failed.
type Error struct {
	Status       string `json:"status"`       // "error"
	ErrorMessage string `json:"errorMessage"` // says how to correct the request
}

// Text is an answer of a runner in JSON.
type Text struct {
	Text string `json:"text"`
}

// refusals are the answers to requests that start no run, and to those whose run has no result.
func refusals(more ...answer) []answer {
	failed := isJSON(Error{})
	return append([]answer{
		{status: "400", text: "The body or a field is wrong.", body: failed, headers: []string{"X-Service-Warning"}},
		{status: "401", text: "The credential is missing or wrong.", body: failed, headers: []string{"WWW-Authenticate"}},
		{status: "403", text: "The hook is not open to this address.", body: failed},
		{status: "404", text: "Webhooks are off, or no hook has this name.", body: failed},
		{status: "405", text: "The method is not POST.", body: failed, headers: []string{"Allow"}},
		{status: "408", text: "The body took too long to arrive.", body: failed},
		{status: "409", text: "The idempotency key was used before, and its answer cannot be given.", body: failed,
			headers: []string{"Retry-After"}},
		{status: "413", text: "The body, or what the hook makes of it, is too large.", body: failed},
		{status: "415", text: "The body is compressed, or of a content type that the hook does not take.", body: failed,
			headers: []string{"Accept-Encoding"}},
		{status: "429", text: "Too many bad credentials from this address, or more runs than the hook's rate.", body: failed,
			headers: []string{"Retry-After"}},
		{status: "503", text: "The queue is full, or the agent or the store cannot be reached. Try again.", body: failed,
			headers: []string{"Retry-After"}},
	}, more...)
}

// outcomes are further answers to a caller that waits for the run.
var outcomes = []answer{
	{status: "406", text: "An answer with a schema cannot be streamed.", body: isJSON(Error{})},
	{status: "422", text: "The agent's answer did not match the schema, even after repairs.", body: isJSON(Error{}), headers: ofRun},
	{status: "502", text: "The agent failed, or the run was cancelled.", body: isJSON(Error{}), headers: ofRun},
	{status: "504", text: "The run did not finish in time.", body: isJSON(Error{}), headers: ofRun},
}

var (
	ofRun    = []string{"X-Service-Run-Id", "X-Service-Chat-Id"}
	ofAnswer = append([]string{"X-Service-Schema-Repair-Attempts", "Idempotent-Replayed", "X-Service-Warning"}, ofRun...)
	ofCaller = []string{"Idempotency-Key", "webhook-id", "traceparent"}
)

// accepted answers a request that became a run of the agent, or the caller that waited for it.
func accepted() []answer {
	return []answer{
		{status: "200", text: "The agent's answer, for a caller that waits: text, JSON that fits the schema, or a stream of events.",
			body: content{mediaText: someText, mediaJSON: anyJSON, mediaEvents: someText}, headers: ofAnswer},
		{status: "202", text: "The run is accepted, and will be carried out.", body: isJSON(Accepted{}),
			headers: []string{"Location", "Idempotent-Replayed", "X-Service-Warning"}},
	}
}

// Callers is the API of those who send webhooks, and what is sent to receivers and runners.
var Callers = &Document{
	title: "caddyhooks",
	text: "Webhooks into AI agents. Requests start runs of an agent. The path is /api/hooks unless the Caddyfile sets another. " +
		"Receivers of callbacks and runners of your own implement the webhooks of this document.",
	servers: []any{object{"url": "{origin}/api/hooks", "variables": object{"origin": object{"default": "http://127.0.0.1:8080",
		"description": "The site in the Caddyfile."}}}},
	security: []any{object{"bearer": []string{}}, object{"token": []string{}}},
	schemes: object{
		"bearer": object{"type": "http", "scheme": "bearer", "description": "The webhook token."},
		"token":  object{"type": "apiKey", "in": "header", "name": "X-Service-Token", "description": "The webhook token."},
	},
	tags: [][2]string{
		{"hooks", "Start runs."}, {"runs", "Follow and cancel runs."}, {"sent", "What caddyhooks sends: to receivers and to runners."},
	},
	operations: []operation{
		{method: "POST", path: "/wake", id: "wake", tag: "hooks", summary: "Tell an agent of an event", headers: ofCaller,
			body: isJSON(WakeRequest{}), answers: refusals(answer{status: "200", text: "The event is accepted.", body: isJSON(Accepted{}),
				headers: []string{"Idempotent-Replayed", "X-Service-Warning"}})},
		{method: "POST", path: "/agent", id: "agent", tag: "hooks", summary: "Start a full turn of an agent",
			text: "Without syncResponse the answer is 202 with the id of the run. With syncResponse the request is held until the run has " +
				"ended. Add Accept: text/event-stream to follow the answer while the agent works.",
			headers: append([]string{"Accept"}, ofCaller...), body: isJSON(AgentRequest{}),
			answers: refusals(append(accepted(), outcomes...)...)},
		{method: "POST", path: "/{name}", id: "customHook", tag: "hooks", summary: "Call a custom hook",
			text: "The body is what the sender sends. The hook's auth line says how the sender authenticates: with the token, or by a " +
				"signature. A sender's scheme or a respond line may change the status and body of a success, and answer a sender's challenge.",
			headers: append([]string{"Accept"}, ofCaller...),
			body:    content{mediaJSON: anyJSON, "application/x-www-form-urlencoded": object{"type": "object"}},
			answers: refusals(append([]answer{
				{status: "200", text: "A wake event is accepted, the request is ignored, or the agent's answer for a hook with sync.",
					body: content{mediaText: someText, mediaJSON: anyJSON, mediaEvents: someText}, headers: ofAnswer},
				{status: "202", text: "The run is accepted, or the runs of a hook with each or of a batch of events.", body: isJSON(Accepted{}),
					headers: []string{"Location", "Idempotent-Replayed", "X-Service-Warning"}},
				{status: "2XX", text: "What the sender or a respond line asks for.", body: content{mediaText: someText, mediaJSON: anyJSON}},
			}, outcomes...)...)},
		{method: "GET", path: "/runs/{id}", id: "run", tag: "runs", summary: "Show a run", query: []string{"wait"},
			answers: ofRuns(answer{status: "200", text: "The run.", body: isJSON(api.Run{})})},
		{method: "POST", path: "/runs/{id}/cancel", id: "cancelRun", tag: "runs", summary: "Cancel a run",
			answers: ofRuns(
				answer{status: "200", text: "The run is cancelled.", body: isJSON(api.Run{})},
				answer{status: "202", text: "The runner has not stopped yet.", body: isJSON(api.Run{})},
				answer{status: "409", text: "The run has ended in another way.", body: isJSON(Error{})})},
		{method: "GET", path: "/runs/{id}/events", id: "runEvents", tag: "runs", summary: "Follow a run",
			text: "Server-sent events: status, delta, reset and result. The data of result is the run.", headers: []string{"Last-Event-ID"},
			answers: ofRuns(
				answer{status: "200", text: "The events.", body: content{mediaEvents: someText}},
				answer{status: "204", text: "The reader has seen the result."})},
		{method: "POST", path: "/replies/{id}", id: "reply", tag: "runs", summary: "Answer a turn that an agent has taken on",
			text: "For runners of your own (runner http with async). URL and token are those in reply of the turn. The token is sent as " +
				"Authorization: Bearer <token>. The same answer may be sent again.",
			body: isJSON(api.Reply{}), answers: ofRuns(
				answer{status: "200", text: "The answer is kept.", body: isJSON(api.Replied{})},
				answer{status: "409", text: "There is another answer already, or the run has ended.", body: isJSON(Error{})},
				answer{status: "413", text: "The answer is too long.", body: isJSON(Error{})})},
		{method: "GET", path: "/answers/{id}", id: "answerPage", tag: "runs", summary: "A page for people who answer a question", open: true,
			answers: []answer{{status: "200", text: "The page. It decides nothing.", body: content{"text/html": someText}},
				{status: "404", text: "There is no such page.", body: isJSON(Error{})}}},
		{method: "POST", path: "/answers/{id}", id: "answerByLink", tag: "runs", summary: "Show or answer the question of a link",
			text: "The token is the part of the link behind #, and is sent as Authorization: Bearer <token>.",
			body: isJSON(api.GivenAnswer{}), answers: ofRuns(
				answer{status: "200", text: "The question, which now has the answer if one was given.", body: isJSON(api.LinkedQuestion{})},
				answer{status: "403", text: "Only some people may answer, in the chat.", body: isJSON(Error{})},
				answer{status: "409", text: "Somebody was first: the question has that answer.", body: isJSON(api.LinkedQuestion{})},
				answer{status: "413", text: "The answer is too long.", body: isJSON(Error{})})},
	},
	webhooks: []operation{
		{method: "POST", path: "callback", id: "callback", tag: "sent", summary: "The result of a run, posted to its callback URL", open: true,
			text: "The body is the agent's text, JSON if the run had a schema, or an error if it is not completed. With a secret, the " +
				"request is signed as Standard Webhooks does. Network errors, 408, 425, 429 and 5xx are tried again.",
			headers: []string{"webhook-id", "webhook-timestamp", "webhook-signature", "X-Service-Run-Id", "X-Service-Chat-Id",
				"X-Service-Run-Status", "X-Service-Attempt", "traceparent"},
			body: content{mediaText: someText, mediaJSON: anyJSON},
			answers: []answer{{status: "2XX", text: "The callback is delivered."},
				{status: "4XX", text: "The callback is dead, but for 408, 425 and 429.", headers: []string{"Retry-After"}}}},
		{method: "POST", path: "turn", id: "turn", tag: "sent", summary: "A turn, posted to a runner of your own (runner http)",
			text:    "The connection is closed when the run is cancelled or its time is up.",
			headers: []string{"Idempotency-Key", "X-Service-Run-Id", "X-Service-Chat-Id", "X-Service-Deadline", "traceparent"},
			body:    isJSON(runners.TurnRequest{}),
			answers: []answer{
				{status: "200", text: "The answer: text, JSON, or a stream of the events delta, heartbeat, result and error.",
					body: content{mediaText: someText, mediaJSON: Text{}, mediaEvents: someText}},
				{status: "202", text: "With async: the agent has taken the turn on, and answers at reply.", headers: []string{"Location"}},
				{status: "429", text: "The turn was not taken on. It is tried again later.", headers: []string{"Retry-After"}},
				{status: "503", text: "The turn was not taken on. It is tried again later.", headers: []string{"Retry-After"}},
				{status: "4XX", text: "The run fails."}}},
	},
}

// ofRuns are the answers to requests about a run.
func ofRuns(more ...answer) []answer {
	failed := isJSON(Error{})
	return append([]answer{
		{status: "400", text: "A parameter is wrong.", body: failed},
		{status: "401", text: "The token is missing or wrong.", body: failed, headers: []string{"WWW-Authenticate"}},
		{status: "404", text: "Webhooks are off, or there is no such run.", body: failed},
		{status: "405", text: "The method is another one.", body: failed, headers: []string{"Allow"}},
		{status: "429", text: "Too many bad credentials from this address.", body: failed, headers: []string{"Retry-After"}},
		{status: "503", text: "The store cannot be reached, or too many streams are open.", body: failed, headers: []string{"Retry-After"}},
	}, more...)
}
