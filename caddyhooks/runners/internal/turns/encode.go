// Package turns has what all runners do with a turn before they pass it on: its name, its JSON, the system text, and messages that
// no agent takes for a command. It imports engine, and no other package of the runners.
package turns

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Request is a turn as JSON. All fields but folded and reply are always present, which keeps scripts simple.
type Request struct {
	Version        int             `json:"version"`          // 1
	RunID          string          `json:"runId"`            // the run
	ChatID         string          `json:"chatId"`           // the chat, whose conversation the turn continues
	Phase          string          `json:"phase"`            // "turn", or "repair" to correct an answer that does not fit the schema
	Action         engine.Action   `json:"action"`           // "wake" or "agent"
	Hook           string          `json:"hook"`             // "wake", "agent", or the name of the custom hook
	Name           string          `json:"name"`             // the name that the caller gave the run, or ""
	Message        string          `json:"message"`          // the message for the agent
	System         string          `json:"system"`           // instructions for the system prompt, or ""
	Tier           *string         `json:"tier"`             // the model tier, or null if the run names none
	Memory         Memory          `json:"memory"`           // what the agent may remember
	ResponseSchema json.RawMessage `json:"responseSchema"`   // the JSON Schema of the answer, or null
	Metadata       json.RawMessage `json:"metadata"`         // the object that came with the request
	TimeoutSeconds int             `json:"timeoutSeconds"`   // how long the run may take
	Isolated       bool            `json:"isolated"`         // use no history, no tools and no memory
	Folded         []FoldedRun     `json:"folded,omitempty"` // all runs of a turn that carries out several
	Reply          *ReplyTo        `json:"reply,omitempty"`  // where the agent can send the answer later
}

// ReplyTo is where an agent that has taken a turn on sends its answer.
type ReplyTo struct {
	URL   string    `json:"url"`
	Token string    `json:"token"` // for `Authorization: Bearer`
	Until time.Time `json:"until"` // an answer that comes after that is not waited for
}

// FoldedRun is a run of a turn that carries out several.
type FoldedRun struct {
	RunID      string    `json:"runId"`
	AcceptedAt time.Time `json:"acceptedAt"`
}

// Memory is what an agent may remember in a turn.
type Memory struct {
	Preset  string `json:"preset"`  // the name of the memory preset
	Recall  bool   `json:"recall"`  // it may use what it remembers
	Persist bool   `json:"persist"` // it may remember this turn
}

// Encode is the body of a request, and what a program may read from its standard input. reply is nil if there is no answering later.
func Encode(turn *engine.Turn, reply *ReplyTo) ([]byte, error) {
	body := Request{
		Version: 1, RunID: turn.RunID, ChatID: turn.ChatID, Phase: Phase(turn), Action: turn.Action, Hook: turn.Hook,
		Name: turn.Name, Message: turn.Message, System: turn.System, ResponseSchema: turn.ResponseSchema,
		Metadata: turn.Metadata, Isolated: turn.Isolated(),
		Memory:         Memory{Preset: turn.MemoryPreset, Recall: turn.Memory(), Persist: turn.Memory()},
		TimeoutSeconds: int(turn.Timeout / time.Second), Reply: reply,
	}
	if turn.Tier != "" {
		body.Tier = &turn.Tier
	}
	for _, run := range turn.Folded {
		body.Folded = append(body.Folded, FoldedRun{RunID: run.RunID, AcceptedAt: run.AcceptedAt.UTC()})
	}
	if body.Metadata == nil {
		body.Metadata = json.RawMessage(`{}`)
	}
	var buf bytes.Buffer
	buf.Grow(512 + len(turn.Message)*9/8 + len(turn.System) + len(turn.ResponseSchema) + len(turn.Metadata))
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&body); err != nil {
		return nil, fmt.Errorf("encoding the turn: %w", err)
	}
	return buf.Bytes(), nil
}

func Phase(turn *engine.Turn) string {
	if turn.Repair > 0 {
		return "repair"
	}
	return "turn"
}

// Key names a call of the runner. All tries of the same call have the same name.
func Key(turn *engine.Turn) string {
	if turn.Repair > 0 {
		return fmt.Sprintf("%s:repair-%d", turn.RunID, turn.Repair)
	}
	return turn.RunID + ":turn"
}

// EncodeJSON encodes a value without the escapes that are for HTML.
func EncodeJSON(value any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, fmt.Errorf("encoding the turn: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
