package api

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Run is a run as the run API and the admin API show it.
type Run struct {
	Status         engine.Status `json:"status"`
	RunID          string        `json:"runId"`
	ChatID         string        `json:"chatId"`
	Hook           string        `json:"hook"`
	Action         engine.Action `json:"action"`
	Runner         string        `json:"runner,omitempty"` // by its name in the configuration
	Name           string        `json:"name,omitempty"`
	AcceptedAt     *time.Time    `json:"acceptedAt"`
	StartedAt      *time.Time    `json:"startedAt,omitempty"`
	FinishedAt     *time.Time    `json:"finishedAt,omitempty"`
	Attempts       int           `json:"attempts"`
	WaitingFor     string        `json:"waitingFor,omitempty"`
	Reply          *string       `json:"reply,omitempty"`
	ErrorMessage   string        `json:"errorMessage,omitempty"`
	RepairAttempts int           `json:"repairAttempts,omitempty"`
	SessionRenewed bool          `json:"sessionRenewed,omitempty"` // the agent had lost the conversation of the chat, and began another one
	FoldedInto     string        `json:"foldedInto,omitempty"`     // the run that led its turn, if that is another one
	Folded         int           `json:"folded,omitempty"`         // how many runs its turn had, if it led them
	Deliveries     []Delivery    `json:"deliveries,omitempty"`
}

func NewRun(r *engine.Record) Run {
	shown := Run{
		Status: r.Status, RunID: r.Run.ID, ChatID: r.Run.ChatID, Hook: r.Run.Hook, Action: r.Run.Action, Runner: r.Run.Runner, Name: r.Run.Name,
		AcceptedAt: text.JSONTime(r.Run.AcceptedAt), StartedAt: text.JSONTime(r.StartedAt), FinishedAt: text.JSONTime(r.FinishedAt),
		Attempts: r.Attempts, WaitingFor: r.WaitingFor, RepairAttempts: r.Outcome.Repairs, SessionRenewed: r.Outcome.SessionRenewed,
		FoldedInto: r.FoldedInto,
	}
	if r.Folded > 1 {
		shown.Folded = r.Folded
	}
	switch {
	case r.Status == engine.Completed:
		reply := r.Outcome.Text
		if r.Outcome.JSON != nil {
			reply = string(r.Outcome.JSON)
		}
		shown.Reply = &reply
	case r.Status.Ended():
		shown.ErrorMessage = r.Outcome.Message
	}
	for _, d := range r.Deliveries {
		shown.Deliveries = append(shown.Deliveries, NewDelivery(d))
	}
	return shown
}
