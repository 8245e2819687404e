package postgres

import (
	"encoding/json"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// What has no column of its own is kept as JSON, so that an operator can read it, and so that two versions of the program can work
// side by side: a field that is not there has its zero value, and an unknown one is passed over. A name must never be used for something
// else. Texts are as dbText writes them, and durations are in nanoseconds.

// runJSON is a run without what columns have: ID, ChatID, Hook, Runner and AcceptedAt. Of a run that has ended, what it was told is
// apart.
type runJSON struct {
	Action         string        `json:"action,omitempty"`
	Name           string        `json:"name,omitempty"`
	Message        string        `json:"message,omitempty"`
	Metadata       string        `json:"metadata,omitempty"`
	Schema         string        `json:"schema,omitempty"`
	Tier           string        `json:"tier,omitempty"`
	ValidationTier string        `json:"validationTier,omitempty"`
	MemoryPreset   string        `json:"memoryPreset,omitempty"`
	Sync           bool          `json:"sync,omitempty"`
	CallbackURL    string        `json:"callbackUrl,omitempty"`
	Channel        string        `json:"channel,omitempty"`
	To             string        `json:"to,omitempty"`
	Timeout        time.Duration `json:"timeout,omitempty"`
	QueueTime      time.Duration `json:"queueTime,omitempty"`
	History        time.Duration `json:"history,omitempty"`
	TraceParent    string        `json:"traceParent,omitempty"`
	AgainOf        string        `json:"againOf,omitempty"`
	NewChat        bool          `json:"newChat,omitempty"`
	Test           bool          `json:"test,omitempty"`
	FoldWindow     time.Duration `json:"foldWindow,omitempty"`
	FoldMax        int           `json:"foldMax,omitempty"`
	FoldAlike      uint32        `json:"foldAlike,omitempty"`
	Key            *keyJSON      `json:"key,omitempty"`
	Replay         *keyJSON      `json:"replay,omitempty"`
	Owner          string        `json:"owner,omitempty"`
	Together       []siblingJSON `json:"together,omitempty"`
	Client         string        `json:"client,omitempty"`
	KeyHeader      string        `json:"keyHeader,omitempty"`
}

type keyJSON struct {
	ID      []byte `json:"id"`
	Body    []byte `json:"body"`
	AnyBody bool   `json:"anyBody,omitempty"`
}

type siblingJSON struct {
	ID   string `json:"id"`
	Chat string `json:"chat"`
}

// encodeRun writes down a run. That of a run which has ended is engine.Run.Kept.
func encodeRun(run *engine.Run) (string, error) {
	r := runJSON{
		Action: string(run.Action), Name: dbText(run.Name),
		Message: dbText(run.Message), Metadata: dbText(string(run.Metadata)), Schema: dbText(string(run.Schema)),
		Tier: dbText(run.Tier), ValidationTier: dbText(run.ValidationTier), MemoryPreset: dbText(run.MemoryPreset),
		Sync: run.Sync, CallbackURL: dbText(run.CallbackURL), Channel: dbText(run.Channel), To: dbText(run.To),
		Timeout: run.Timeout, QueueTime: run.QueueTime, History: run.History, TraceParent: dbText(run.TraceParent),
		AgainOf: run.AgainOf, NewChat: run.NewChat, Test: run.Test,
		FoldWindow: run.Fold.Window, FoldMax: run.Fold.Max, FoldAlike: run.Fold.Alike,
		Key: newKeyJSON(run.Key), Replay: newKeyJSON(run.Replay), Owner: dbText(run.Owner),
		Client: dbText(run.Client), KeyHeader: dbText(run.KeyHeader),
	}
	for _, sibling := range run.Together {
		r.Together = append(r.Together, siblingJSON{sibling.ID, dbText(sibling.ChatID)})
	}
	data, err := json.Marshal(&r)
	return string(data), err
}

// decodeRun fills in what encodeRun wrote.
func decodeRun(data []byte, run *engine.Run) error {
	var r runJSON
	if err := json.Unmarshal(data, &r); err != nil {
		return err
	}
	run.Action, run.Name = engine.Action(r.Action), goText(r.Name)
	run.Message, run.Metadata, run.Schema = goText(r.Message), rawJSON(r.Metadata), rawJSON(r.Schema)
	run.Tier, run.ValidationTier, run.MemoryPreset = goText(r.Tier), goText(r.ValidationTier), goText(r.MemoryPreset)
	run.Sync, run.CallbackURL, run.Channel, run.To = r.Sync, goText(r.CallbackURL), goText(r.Channel), goText(r.To)
	run.Timeout, run.QueueTime, run.History, run.TraceParent = r.Timeout, r.QueueTime, r.History, goText(r.TraceParent)
	run.AgainOf, run.NewChat, run.Test = r.AgainOf, r.NewChat, r.Test
	run.Fold = engine.Fold{Window: r.FoldWindow, Max: r.FoldMax, Alike: r.FoldAlike}
	run.Key, run.Replay, run.Owner = r.Key.key(), r.Replay.key(), goText(r.Owner)
	run.Client, run.KeyHeader = goText(r.Client), goText(r.KeyHeader)
	for _, sibling := range r.Together {
		run.Together = append(run.Together, engine.Sibling{ID: sibling.ID, ChatID: goText(sibling.Chat)})
	}
	return nil
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
	return json.RawMessage(goText(text))
}

// toldJSON is what an ended run was told.
type toldJSON struct {
	Message  string `json:"message,omitempty"`
	Metadata string `json:"metadata,omitempty"`
	Schema   string `json:"schema,omitempty"`
	Cut      bool   `json:"cut,omitempty"`
}

func encodeTold(told engine.Told) (string, error) {
	data, err := json.Marshal(&toldJSON{dbText(told.Message), dbText(string(told.Metadata)), dbText(string(told.Schema)), told.Cut})
	return string(data), err
}

func decodeTold(data []byte) (told engine.Told, err error) {
	var t toldJSON
	err = json.Unmarshal(data, &t)
	return engine.Told{Message: goText(t.Message), Metadata: rawJSON(t.Metadata), Schema: rawJSON(t.Schema), Cut: t.Cut}, err
}

// endingJSON is how a run ended.
type endingJSON struct {
	Status     string        `json:"status"`
	Text       string        `json:"text,omitempty"`
	HasText    bool          `json:"hasText,omitempty"`
	JSON       *string       `json:"json,omitempty"`
	Repairs    int           `json:"repairs,omitempty"`
	Checked    bool          `json:"checked,omitempty"`
	Failure    string        `json:"failure,omitempty"`
	Message    string        `json:"message,omitempty"`
	RetryAfter time.Duration `json:"retryAfter,omitempty"`

	CancelledBy      string   `json:"cancelledBy,omitempty"`
	Reason           string   `json:"reason,omitempty"`
	LastAnswer       string   `json:"lastAnswer,omitempty"`
	ValidationErrors []string `json:"validationErrors,omitempty"`

	SessionRenewed  bool             `json:"sessionRenewed,omitempty"`
	Permissions     []permissionJSON `json:"permissions,omitempty"`
	MorePermissions int              `json:"morePermissions,omitempty"`

	Steps []stepJSON `json:"steps,omitempty"`
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

func encodeEnding(outcome *engine.Outcome, steps []engine.Step) (string, error) {
	e := endingJSON{
		Status: string(outcome.Status), Text: dbText(outcome.Text), HasText: outcome.HasText,
		Repairs: outcome.Repairs, Checked: outcome.Checked,
		Failure: string(outcome.Failure), Message: dbText(outcome.Message), RetryAfter: outcome.RetryAfter,
		CancelledBy: dbText(outcome.Account.CancelledBy), Reason: dbText(outcome.Account.Reason),
		LastAnswer: dbText(outcome.Account.LastAnswer), ValidationErrors: dbTexts(outcome.Account.ValidationErrors),
		SessionRenewed: outcome.SessionRenewed, MorePermissions: outcome.Account.MorePermissions,
	}
	for _, p := range outcome.Account.Permissions {
		e.Permissions = append(e.Permissions, permissionJSON{dbText(p.Kind), dbText(p.Title), dbText(p.Answer)})
	}
	if outcome.JSON != nil {
		text := dbText(string(outcome.JSON))
		e.JSON = &text
	}
	for i := range steps {
		s := &steps[i]
		e.Steps = append(e.Steps, stepJSON{string(s.Phase), s.StartedAt, s.Took, dbText(s.Tier), s.Bytes, dbTexts(s.Errors)})
	}
	data, err := json.Marshal(&e)
	return string(data), err
}

func decodeEnding(data []byte) (outcome engine.Outcome, steps []engine.Step, err error) {
	var e endingJSON
	if err := json.Unmarshal(data, &e); err != nil {
		return outcome, nil, err
	}
	outcome = engine.Outcome{
		Status: engine.Status(e.Status), Text: goText(e.Text), HasText: e.HasText, Repairs: e.Repairs, Checked: e.Checked,
		Failure: engine.Failure(e.Failure), Message: goText(e.Message), RetryAfter: e.RetryAfter,
		Account: engine.Account{CancelledBy: goText(e.CancelledBy), Reason: goText(e.Reason), LastAnswer: goText(e.LastAnswer),
			ValidationErrors: goTexts(e.ValidationErrors), MorePermissions: e.MorePermissions},
		SessionRenewed: e.SessionRenewed,
	}
	for _, p := range e.Permissions {
		outcome.Account.Permissions = append(outcome.Account.Permissions, engine.Permission{Kind: goText(p.Kind), Title: goText(p.Title), Answer: goText(p.Answer)})
	}
	if e.JSON != nil {
		outcome.JSON = []byte(goText(*e.JSON))
	}
	for _, s := range e.Steps {
		steps = append(steps, engine.Step{Phase: engine.Phase(s.Phase), StartedAt: s.StartedAt, Took: s.Took, Tier: goText(s.Tier), Bytes: s.Bytes,
			Errors: goTexts(s.Errors)})
	}
	return outcome, steps, nil
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
	ContentType string        `json:"contentType,omitempty"`
	Sent        int           `json:"sent,omitempty"`
	Attempt     int           `json:"attempt,omitempty"`
	Restart     int           `json:"restart,omitempty"`
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

func encodeDelivery(d *engine.Delivery) (string, error) {
	j := deliveryJSON{
		ChatID: dbText(d.ChatID), Hook: dbText(d.Hook), RunStatus: string(d.RunStatus), Callback: dbText(d.Callback), Channel: dbText(d.Channel),
		To: dbText(d.To), ContentType: dbText(d.ContentType), Sent: d.Sent, Attempt: d.Attempt, Restart: d.Restart, TriedAt: d.TriedAt,
		LastStatus: d.LastStatus, LastAnswer: dbText(d.LastAnswer), LastError: dbText(d.LastError),
	}
	for _, a := range d.History {
		j.History = append(j.History, attemptJSON{a.At, a.Took, a.Status, dbText(a.Error)})
	}
	data, err := json.Marshal(&j)
	return string(data), err
}

// decodeDelivery fills in what encodeDelivery wrote.
func decodeDelivery(data []byte, d *engine.Delivery) error {
	var j deliveryJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	d.ChatID, d.Hook, d.RunStatus = goText(j.ChatID), goText(j.Hook), engine.Status(j.RunStatus)
	d.Callback, d.Channel, d.To, d.ContentType = goText(j.Callback), goText(j.Channel), goText(j.To), goText(j.ContentType)
	d.Sent, d.Attempt, d.Restart, d.TriedAt = j.Sent, j.Attempt, j.Restart, j.TriedAt
	d.LastStatus, d.LastAnswer, d.LastError = j.LastStatus, goText(j.LastAnswer), goText(j.LastError)
	for _, a := range j.History {
		d.History = append(d.History, engine.Attempt{At: a.At, Took: a.Took, Status: a.Status, Error: goText(a.Error)})
	}
	return nil
}
