package caddyhooks

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/untrusted"
)

func init() {
	instanceEndpoints.handle("GET /runs", (*instance).listRuns, append(runFilters, "limit", "cursor")...)
	instanceEndpoints.handle("GET /runs/{id}", (*instance).serveRun)
	instanceEndpoints.handle("POST /runs/{id}/cancel", (*instance).serveCancel)
}

// listRuns lists runs, the newest first.
func (in *instance) listRuns(w http.ResponseWriter, r *http.Request) error {
	query, err := parseRunQuery(r.URL.Query(), time.Now())
	if err != nil {
		return err
	}
	if searches(&query) {
		free, err := in.service.searches.take(w, "searches")
		if err != nil {
			return err
		}
		defer free()
	}
	hideTexts := callerFrom(r).hideTexts
	query.Told, query.Deliveries = !hideTexts, true
	records, next, err := in.service.engine.List(r.Context(), query)
	if err != nil {
		return listError(err)
	}
	page := struct {
		Runs       []runSummary `json:"runs"`
		Cursor     string       `json:"cursor,omitempty"` // of the next page, which there may be even if this one is short
		SearchedTo *time.Time   `json:"searchedTo,omitempty"`
	}{Runs: newRunSummaries(records, hideTexts), Cursor: next}
	if searches(&query) {
		page.SearchedTo = searchedTo(next)
	}
	return writeAdminJSON(w, http.StatusOK, page)
}

// runSummary is a run as lists show it to operators, without its reply.
type runSummary struct {
	runJSON
	Client      string       `json:"client,omitempty"`
	CancelledBy string       `json:"cancelledBy,omitempty"`
	Reason      string       `json:"reason,omitempty"`
	AgainOf     string       `json:"againOf,omitempty"`
	Preview     string       `json:"preview,omitempty"`
	Tier        string       `json:"tier,omitempty"`
	Test        bool         `json:"test,omitempty"`
	Sync        bool         `json:"sync,omitempty"`
	SentOut     *sentOutJSON `json:"sentOut,omitempty"`
}

// sentOutJSON is how many deliveries a run has, by their status.
type sentOutJSON struct {
	Delivered int `json:"delivered"`
	Pending   int `json:"pending"`
	Dead      int `json:"dead"`
}

// newRunSummary shows a run in a list. hideTexts is that of the caller.
func newRunSummary(r *engine.Record, hideTexts bool) runSummary {
	summary := runSummary{
		runJSON: newRunJSON(r), Client: r.Run.Client, CancelledBy: r.Outcome.Account.CancelledBy,
		AgainOf: r.Run.AgainOf, Tier: r.Run.Tier, Test: r.Run.Test, Sync: r.Run.Sync,
	}
	summary.Reply, summary.Deliveries = nil, nil
	if !hideTexts {
		summary.Preview = previewOf(r.Run.Message)
		summary.Reason = r.Outcome.Account.Reason // which may quote what the agent answered
	}
	if len(r.Deliveries) > 0 {
		summary.SentOut = new(sentOutJSON)
	}
	for _, d := range r.Deliveries {
		switch d.Status {
		case engine.Delivered:
			summary.SentOut.Delivered++
		case engine.Pending:
			summary.SentOut.Pending++
		case engine.Dead:
			summary.SentOut.Dead++
		}
	}
	return summary
}

func newRunSummaries(records []*engine.Record, hideTexts bool) []runSummary {
	return showAll(records, func(r *engine.Record) runSummary { return newRunSummary(r, hideTexts) })
}

// previewOf is the first line of a message, for lists, or its beginning if that line has no word. Lines that mark the rest as
// data from outside tell nothing.
func previewOf(message string) string {
	const most = 160 // characters
	message = untrusted.Unwrapped(message)
	var line string
	for line = range strings.Lines(message) {
		if line = strings.TrimSpace(line); line != "" {
			break
		}
	}
	if !strings.ContainsFunc(line, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }) {
		line = collapsed(message) // such as a payload that begins with a brace
	}
	var preview strings.Builder
	length := 0
	for _, c := range line { // a byte that is not UTF-8 becomes the replacement character
		if length == most-1 && utf8.RuneCountInString(line) > most {
			return preview.String() + "…"
		}
		if !unicode.IsPrint(c) {
			c = ' '
		}
		preview.WriteRune(c)
		length++
	}
	return preview.String()
}

// collapsed is the beginning of a text, on one line and without indents.
func collapsed(text string) string {
	const looksAt = 4096 // bytes
	return strings.ToValidUTF8(strings.Join(strings.Fields(text[:min(len(text), looksAt)]), " "), "")
}

func (in *instance) serveRun(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	record, err := in.service.engine.Find(r.Context(), id, 0)
	if err != nil {
		return adminRunError(id, err)
	}
	return writeAdminJSON(w, http.StatusOK, in.newRunDetails(record))
}

// runDetails is a run as operators see it, with what it was told, where it came from and why it ended as it did.
type runDetails struct {
	runSummary
	KeyHeader        string            `json:"keyHeader,omitempty"`
	LastAnswer       string            `json:"lastAnswer,omitempty"`
	ValidationErrors []string          `json:"validationErrors,omitempty"`
	Permissions      []permissionJSON  `json:"permissions,omitempty"`
	MorePermissions  int               `json:"morePermissions,omitempty"` // that the agent asked for, and that are not kept
	Message          *string           `json:"message,omitempty"`
	MessageCut       bool              `json:"messageCut,omitempty"`
	Metadata         json.RawMessage   `json:"metadata,omitempty"`
	Schema           json.RawMessage   `json:"schema,omitempty"`
	KeptUntil        *time.Time        `json:"keptUntil,omitempty"` // then message, metadata and schema are forgotten, or earlier if there is much
	AgainAs          string            `json:"againAs,omitempty"`
	ValidationTier   string            `json:"validationTier,omitempty"`
	MemoryPreset     string            `json:"memoryPreset,omitempty"`
	TimeoutSeconds   float64           `json:"timeoutSeconds"`
	QueueTimeSeconds float64           `json:"queueTimeSeconds,omitempty"`
	TraceParent      string            `json:"traceParent,omitempty"`
	Steps            []stepJSON        `json:"steps"`
	Deliveries       []deliveryDetails `json:"deliveries,omitempty"`
}

// permissionJSON is what an agent asked to be allowed, and what it was told.
type permissionJSON struct {
	Kind   string `json:"kind"`
	Title  string `json:"title"`
	Answer string `json:"answer"` // "allowed" or "rejected"
}

func (in *instance) newRunDetails(r *engine.Record) runDetails {
	account := &r.Outcome.Account
	details := runDetails{
		runSummary: newRunSummary(r, true), // it has the whole message
		KeyHeader:  r.Run.KeyHeader, LastAnswer: account.LastAnswer, ValidationErrors: account.ValidationErrors, AgainAs: r.AgainAs,
		ValidationTier: r.Run.ValidationTier, MemoryPreset: r.Run.MemoryPreset,
		TimeoutSeconds: text.JSONSeconds(r.Run.Timeout), QueueTimeSeconds: text.JSONSeconds(r.Run.QueueTime),
		TraceParent: r.Run.TraceParent, Steps: showAll(r.Steps, newStepJSON), MorePermissions: account.MorePermissions,
	}
	for _, p := range account.Permissions {
		details.Permissions = append(details.Permissions, permissionJSON(p))
	}
	details.Reply, details.Reason = newRunJSON(r).Reply, account.Reason
	for _, d := range r.Deliveries {
		shown := newDeliverySummary(d)
		shown.History = newAttemptsJSON(d.History)
		details.Deliveries = append(details.Deliveries, shown)
	}
	if message, ok := messageOf(r); ok {
		details.Message, details.Metadata, details.Schema = &message, r.Run.Metadata, r.Run.Schema
		details.MessageCut = r.Kept == engine.KeptCut
		details.KeptUntil = in.keptUntil(r)
	}
	return details
}

// messageOf is what a run was told, if it has not ended yet or that is still kept.
func messageOf(r *engine.Record) (message string, ok bool) {
	if r.Status.Ended() && r.Kept == engine.KeptNothing {
		return "", false
	}
	return r.Run.Message, true
}

// keptUntil is when the message of a run that has ended is forgotten, as the settings are now.
func (in *instance) keptUntil(r *engine.Record) *time.Time {
	limits := engine.Limits{History: in.historyInForce()}
	keep := limits.HistoryOf(r.Run.History)
	if !r.Status.Ended() || keep <= 0 {
		return nil
	}
	return text.JSONTime(r.FinishedAt.Add(keep))
}

func (in *instance) serveCancel(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	status, record, err := in.cancelRun(r.Context(), id, callerFrom(r).String())
	if err != nil {
		return adminRunError(id, err)
	}
	return writeAdminJSON(w, status, in.newRunDetails(record))
}

// adminRunError is an error of finding or cancelling a run, in Caddy's admin shape.
func adminRunError(id string, err error) error {
	var ended *runEndedError
	switch {
	case errors.As(err, &ended):
		return conflictf("%w", err)
	case errors.Is(err, engine.ErrNotFound):
		return apiError(http.StatusNotFound, "there is no run %q", text.Abridge(id))
	case errors.Is(err, engine.ErrStopping):
		return apiError(http.StatusServiceUnavailable, "the service is shutting down")
	default:
		return err
	}
}
