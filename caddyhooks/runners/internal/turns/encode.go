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

// request is a turn as JSON. All fields but folded are always present, which keeps scripts simple.
type request struct {
	Version        int             `json:"version"`
	RunID          string          `json:"runId"`
	ChatID         string          `json:"chatId"`
	Phase          string          `json:"phase"`
	Action         engine.Action   `json:"action"`
	Hook           string          `json:"hook"`
	Name           string          `json:"name"`
	Message        string          `json:"message"`
	System         string          `json:"system"`
	Tier           *string         `json:"tier"`
	Memory         memory          `json:"memory"`
	ResponseSchema json.RawMessage `json:"responseSchema"`
	Metadata       json.RawMessage `json:"metadata"`
	TimeoutSeconds int             `json:"timeoutSeconds"`
	Isolated       bool            `json:"isolated"`
	Folded         []foldedRun     `json:"folded,omitempty"` // of a turn for several runs
}

type foldedRun struct {
	RunID      string    `json:"runId"`
	AcceptedAt time.Time `json:"acceptedAt"`
}

type memory struct {
	Preset  string `json:"preset"`
	Recall  bool   `json:"recall"`
	Persist bool   `json:"persist"`
}

// Encode is the body of a request, and what a program may read from its standard input.
func Encode(turn *engine.Turn) ([]byte, error) {
	body := request{
		Version: 1, RunID: turn.RunID, ChatID: turn.ChatID, Phase: Phase(turn), Action: turn.Action, Hook: turn.Hook,
		Name: turn.Name, Message: turn.Message, System: turn.System, ResponseSchema: turn.ResponseSchema,
		Metadata: turn.Metadata, Isolated: turn.Isolated(),
		Memory:         memory{Preset: turn.MemoryPreset, Recall: turn.Memory(), Persist: turn.Memory()},
		TimeoutSeconds: int(turn.Timeout / time.Second),
	}
	if turn.Tier != "" {
		body.Tier = &turn.Tier
	}
	for _, run := range turn.Folded {
		body.Folded = append(body.Folded, foldedRun{RunID: run.RunID, AcceptedAt: run.AcceptedAt.UTC()})
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
