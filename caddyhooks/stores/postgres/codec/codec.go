// Package codec is how texts, runs, questions, deliveries and minutes are written into columns of the PostgreSQL store.
package codec

import (
	"encoding/json"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// What has no column of its own is kept as JSON, so that an operator can read it, and so that two versions of the program can work
// side by side: a field that is not there has its zero value, and an unknown one is passed over. A name must never be used for something
// else. Texts are as Escape writes them, and durations are in nanoseconds.

type keyJSON struct {
	ID      []byte `json:"id"`
	Body    []byte `json:"body"`
	AnyBody bool   `json:"anyBody,omitempty"`
}

type siblingJSON struct {
	ID   string `json:"id"`
	Chat string `json:"chat"`
}

// EncodeRun writes down a run without what columns have. That of a run which has ended is engine.Run.Kept.
func EncodeRun(run *engine.Run) (string, error) { return runJSON.encode(run) }

// DecodeRun fills in what EncodeRun wrote.
func DecodeRun(data []byte, run *engine.Run) error { return runJSON.decode(data, run) }

// EncodeEnding writes down how a run ended.
func EncodeEnding(outcome *engine.Outcome, steps []engine.Step) (string, error) {
	return endingJSON.encode(&engine.Record{Outcome: *outcome, Steps: steps})
}

// DecodeEnding reads what EncodeEnding wrote.
func DecodeEnding(data []byte) (engine.Outcome, []engine.Step, error) {
	var record engine.Record
	err := endingJSON.decode(data, &record)
	return record.Outcome, record.Steps, err
}

func newKeyJSON(key *engine.Key) *keyJSON {
	if key == nil {
		return nil
	}
	return &keyJSON{key.ID[:], key.Body[:], key.AnyBody}
}

func (k *keyJSON) key() *engine.Key {
	if k == nil {
		return nil
	}
	key := &engine.Key{AnyBody: k.AnyBody}
	copy(key.ID[:], k.ID)
	copy(key.Body[:], k.Body)
	return key
}

// rawJSON is nil for a value that is not there.
func rawJSON(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(Unescape(text))
}

// inputJSON is the input of an ended run.
type inputJSON struct {
	Message  string `json:"message,omitempty"`
	Metadata string `json:"metadata,omitempty"`
	Schema   string `json:"schema,omitempty"`
	Cut      bool   `json:"cut,omitempty"`
}

// EncodeInput writes down the input of an ended run.
func EncodeInput(input engine.Input) (string, error) {
	data, err := json.Marshal(&inputJSON{Escape(input.Message), Escape(string(input.Metadata)), Escape(string(input.Schema)), input.Cut})
	return string(data), err
}

// DecodeInput reads what EncodeInput wrote.
func DecodeInput(data []byte) (input engine.Input, err error) {
	var t inputJSON
	err = json.Unmarshal(data, &t)
	return engine.Input{Message: Unescape(t.Message), Metadata: rawJSON(t.Metadata), Schema: rawJSON(t.Schema), Cut: t.Cut}, err
}

type permissionJSON struct {
	Kind   string `json:"kind,omitempty"`
	Title  string `json:"title,omitempty"`
	Answer string `json:"answer,omitempty"`
}

type stepJSON struct {
	Phase     string        `json:"phase"`
	StartedAt time.Time     `json:"startedAt"`
	Took      time.Duration `json:"took,omitempty"`
	Tier      string        `json:"tier,omitempty"`
	Bytes     int           `json:"bytes,omitempty"`
	Errors    []string      `json:"errors,omitempty"`
}

// deliveryJSON is a delivery without what columns have: ID, RunID, Index, Status, Body, CreatedAt, Due and Token. TriedAt has a column too,
// which counts from the first claim on.
type deliveryJSON struct {
	ChatID      string        `json:"chatId,omitempty"`
	Hook        string        `json:"hook,omitempty"`
	RunStatus   string        `json:"runStatus,omitempty"`
	Callback    string        `json:"callback,omitempty"`
	Channel     string        `json:"channel,omitempty"`
	To          string        `json:"to,omitempty"`
	Progress    string        `json:"progress,omitempty"`
	Question    string        `json:"question,omitempty"`
	Closes      bool          `json:"closes,omitempty"`
	ContentType string        `json:"contentType,omitempty"`
	Sent        int           `json:"sent,omitempty"`
	Attempt     int           `json:"attempt,omitempty"`
	Restart     int           `json:"restart,omitempty"`
	Repeats     int           `json:"repeats,omitempty"`
	TriedAt     time.Time     `json:"triedAt,omitzero"`
	LastStatus  int           `json:"lastStatus,omitempty"`
	LastAnswer  string        `json:"lastAnswer,omitempty"`
	LastError   string        `json:"lastError,omitempty"`
	History     []attemptJSON `json:"history,omitempty"`
}

type attemptJSON struct {
	At     time.Time     `json:"at"`
	Took   time.Duration `json:"took,omitempty"`
	Status int           `json:"status,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// EncodeDelivery writes down a delivery without what columns have.
func EncodeDelivery(d *engine.Delivery) (string, error) {
	j := deliveryJSON{
		ChatID: Escape(d.ChatID), Hook: Escape(d.Hook), RunStatus: string(d.RunStatus), Callback: Escape(d.Callback), Channel: Escape(d.Channel),
		To: Escape(d.To), ContentType: Escape(d.ContentType), Sent: d.Sent, Attempt: d.Attempt, Restart: d.Restart, Repeats: d.Repeats,
		Progress: Escape(d.Progress), Question: Escape(d.Question), Closes: d.Closes, TriedAt: d.TriedAt,
		LastStatus: d.LastStatus, LastAnswer: Escape(d.LastAnswer), LastError: Escape(d.LastError),
	}
	for _, a := range d.History {
		j.History = append(j.History, attemptJSON{a.At, a.Took, a.Status, Escape(a.Error)})
	}
	data, err := json.Marshal(&j)
	return string(data), err
}

// DecodeDelivery fills in what EncodeDelivery wrote.
func DecodeDelivery(data []byte, d *engine.Delivery) error {
	var j deliveryJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	d.ChatID, d.Hook, d.RunStatus = Unescape(j.ChatID), Unescape(j.Hook), engine.Status(j.RunStatus)
	d.Callback, d.Channel, d.To, d.ContentType = Unescape(j.Callback), Unescape(j.Channel), Unescape(j.To), Unescape(j.ContentType)
	d.Progress, d.Question, d.Closes = Unescape(j.Progress), Unescape(j.Question), j.Closes
	d.Sent, d.Attempt, d.Restart, d.Repeats, d.TriedAt = j.Sent, j.Attempt, j.Restart, j.Repeats, j.TriedAt
	d.LastStatus, d.LastAnswer, d.LastError = j.LastStatus, Unescape(j.LastAnswer), Unescape(j.LastError)
	for _, a := range j.History {
		d.History = append(d.History, engine.Attempt{At: a.At, Took: a.Took, Status: a.Status, Error: Unescape(a.Error)})
	}
	return nil
}
