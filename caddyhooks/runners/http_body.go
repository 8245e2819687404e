package runners

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// turnRequest is a turn as JSON. All fields but folded are always present, which keeps scripts simple.
type turnRequest struct {
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
	Memory         turnMemory      `json:"memory"`
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

type turnMemory struct {
	Preset  string `json:"preset"`
	Recall  bool   `json:"recall"`
	Persist bool   `json:"persist"`
}

// encodeTurn is the body of a request, and what a program may read from its standard input.
func encodeTurn(turn *engine.Turn) ([]byte, error) {
	body := turnRequest{
		Version: 1, RunID: turn.RunID, ChatID: turn.ChatID, Phase: turnPhase(turn), Action: turn.Action, Hook: turn.Hook,
		Name: turn.Name, Message: turn.Message, System: turn.System, ResponseSchema: turn.ResponseSchema,
		Metadata: turn.Metadata, Isolated: turn.Isolated(),
		Memory:         turnMemory{Preset: turn.MemoryPreset, Recall: turn.Memory(), Persist: turn.Memory()},
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

func turnPhase(turn *engine.Turn) string {
	if turn.Repair > 0 {
		return "repair"
	}
	return "turn"
}

// turnKey names a call of the runner. All tries of the same call have the same name.
func turnKey(turn *engine.Turn) string {
	if turn.Repair > 0 {
		return fmt.Sprintf("%s:repair-%d", turn.RunID, turn.Repair)
	}
	return turn.RunID + ":turn"
}
