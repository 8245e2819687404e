package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
)

// newRun makes a run that has no more than it needs.
func newRun(chat string) *engine.Run {
	return &engine.Run{ChatID: chat, Hook: "agent", Action: engine.Agent, Message: "a message to " + chat, MemoryPreset: "disabled",
		Timeout: time.Minute}
}

// fullRun makes a run in which every field is set, also those that the store sets.
func fullRun(t *testing.T, chat string) *engine.Run {
	t.Helper()
	run := &engine.Run{
		ID:     "not the store's",
		ChatID: chat, Hook: "github", Action: engine.Agent, Name: "a label",
		Message: "line one\nline two of run <the id>", IDPlaceholder: "<the id>", Metadata: []byte(`{ "b": 1.10,  "a": [null, "\u0000"], "a": 12345678901234567890 }`),
		Tier: "smart", ValidationTier: "deep", MemoryPreset: "general_chat", Schema: []byte("{\"type\":\t\"object\"}"),
		Sync: true, CallbackURL: "https://example.com/callback?a=b", Channel: "log", To: "somebody",
		Timeout: 90*time.Second + 7*time.Millisecond, QueueTime: 3*time.Hour + 1, History: 5*time.Hour + 1, AcceptedAt: time.Now().Add(-1000 * time.Hour),
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Runner:      "a runner", Key: newKey(), Owner: "a node", AgainOf: "01890a5d-ac96-774b-bcce-b302099a8057",
		Client: "2001:db8::1", KeyHeader: "X-Github-Delivery", RequestID: "72d3162e-cc78 ✓", Sender: "octo \x00\xff✓", Asks: []byte("[\x00\xff]"), Budgets: []string{"budget by\nx\n", "\xff✓"}, Replaces: true,
		Gates: []gate.Gate{anHour(1000, "all")}, NewChat: true, Test: true,
		Fold:   engine.Fold{Window: 7*time.Second + 1, Max: 1}, // which folds nothing
		Replay: newKey(), Together: []engine.Sibling{{ID: "not", ChatID: "the store's"}},
	}
	run.Replay.AnyBody = true
	allSet(t, run)
	return run
}

// newKey makes a key that nobody has used.
func newKey() *engine.Key {
	var key engine.Key
	for _, half := range [][]byte{key.ID[:16], key.ID[16:], key.Body[:16], key.Body[16:]} {
		id := uuid.New()
		copy(half, id[:])
	}
	return &key
}

// ended is how most runs end.
func ended() engine.End {
	return engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "an answer", HasText: true}}
}

// fullOutcome is an outcome in which every field is set.
func fullOutcome(t *testing.T) engine.Outcome {
	t.Helper()
	outcome := engine.Outcome{Status: engine.Failed, Text: "an answer\nof two lines", HasText: true, JSON: []byte(`{"a":  1}`), Repairs: 2, Checked: true,
		Failure: engine.SchemaUnmet, Message: "why", RetryAfter: time.Minute + 1, SessionRenewed: true,
		Usage: []engine.Use{{HasCost: true, Cost: 7}, {Model: "gpt-5", HasTokens: true, Input: 1 << 40, Output: 2, Cached: 3, Reasoning: 4}}}
	outcome.Account = engine.Account{CancelledBy: "somebody", Reason: "a reason", LastAnswer: "a last answer", ValidationErrors: []string{"one", "two"},
		Permissions: []engine.Permission{{Kind: "edit", Title: "a file", Answer: "allowed"}, {Kind: "fetch"}}, MorePermissions: 2,
		UsageRefused: "too much"}
	allSet(t, &outcome)
	allSet(t, &outcome.Account)
	return outcome
}

// twoSteps are a turn and a repair of a run that was accepted. Every field of the first one is set.
func twoSteps(t *testing.T, run *engine.Run) []engine.Step {
	t.Helper()
	steps := []engine.Step{
		{Phase: engine.PhaseTurn, StartedAt: run.AcceptedAt.Add(3*time.Second + 1), Took: 1500*time.Millisecond + 1, Tier: "smart", Bytes: 1 << 20,
			Errors: []string{"at the top level: must be an object", "", "at /a: ü"}},
		{Phase: engine.PhaseRepair, StartedAt: run.AcceptedAt.Add(5 * time.Second)},
	}
	allSet(t, &steps[0])
	return steps
}

// endedWith is the end of a run with deliveries.
func endedWith(deliveries ...*engine.Delivery) engine.End {
	end := ended()
	end.Deliveries = deliveries
	return end
}

// endedAs is the end of a run that gave no answer.
func endedAs(status engine.Status, failure engine.Failure) engine.End {
	return engine.End{Outcome: engine.Outcome{Status: status, Failure: failure, Message: "why"}}
}

// newDelivery makes a delivery in which every field is set but Attempt, LastError and Token, and Channel and To or Callback.
// It shares its destination with no other. CreatedAt and Due are wrong: the store has to set them.
func newDelivery(run *engine.Run, index int) *engine.Delivery {
	d := &engine.Delivery{
		ID: engine.DeliveryID(run.ID, index), RunID: run.ID, Index: index, ChatID: run.ChatID, Hook: run.Hook, RunStatus: engine.Completed,
		Callback:    fmt.Sprintf("https://%s.example.com/callback?%s", run.ID, strings.Repeat("x", 500)),
		ContentType: "text/plain; charset=utf-8", Body: fmt.Sprintf("body %d of run %s", index, run.ID),
		Progress: "posted \xff before", Sent: 2, Status: engine.Pending, Restart: 3,
		CreatedAt: time.Now().Add(-1000 * time.Hour), TriedAt: time.Now().Add(-2000 * time.Hour), Due: time.Now().Add(5000 * time.Hour),
		LastStatus: 503, LastAnswer: "not \xff now",
	}
	d.History = []engine.Attempt{{At: time.Now().Add(-2000 * time.Hour), Took: 30*time.Second + 1, Status: 503, Error: "the answer was 503 ü"}, {At: time.Now()}}
	if index > 0 {
		d.Callback, d.Channel, d.To = "", "log", fmt.Sprintf("somebody %d of %s", index, run.ID)
	}
	return d
}
