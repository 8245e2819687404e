package codec

import (
	"encoding/json"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

type firstJSON struct {
	ID       string        `json:"id"`
	Chat     string        `json:"chat"`
	Action   string        `json:"action"`
	Sync     bool          `json:"sync,omitempty"`
	Together []siblingJSON `json:"together,omitempty"`
}

// EncodeFirst writes down what a repeated request is told about the first run.
func EncodeFirst(run *engine.Run) string {
	first := firstJSON{ID: run.ID, Chat: Escape(run.ChatID), Action: string(run.Action), Sync: run.Sync}
	for _, sibling := range run.Together {
		first.Together = append(first.Together, siblingJSON{sibling.ID, Escape(sibling.ChatID)})
	}
	data, _ := json.Marshal(&first) // never fails for texts
	return string(data)
}

// DecodeFirst reads what EncodeFirst wrote.
func DecodeFirst(data []byte) (*engine.Run, error) {
	var first firstJSON
	if err := json.Unmarshal(data, &first); err != nil {
		return nil, err
	}
	run := &engine.Run{ID: first.ID, ChatID: Unescape(first.Chat), Action: engine.Action(first.Action), Sync: first.Sync}
	for _, sibling := range first.Together {
		run.Together = append(run.Together, engine.Sibling{ID: sibling.ID, ChatID: Unescape(sibling.Chat)})
	}
	return run, nil
}
