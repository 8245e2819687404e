package hookstest

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

// RunView is all that the API shows of a run.
type RunView struct {
	Status         string    `json:"status"`
	RunID          string    `json:"runId"`
	ChatID         string    `json:"chatId"`
	Hook           string    `json:"hook"`
	Action         string    `json:"action"`
	Runner         string    `json:"runner"`
	Name           string    `json:"name"`
	AcceptedAt     time.Time `json:"acceptedAt"`
	StartedAt      time.Time `json:"startedAt"`
	FinishedAt     time.Time `json:"finishedAt"`
	Attempts       int       `json:"attempts"`
	WaitingFor     string    `json:"waitingFor"`
	Reply          string    `json:"reply"`
	ErrorMessage   string    `json:"errorMessage"`
	RepairAttempts int       `json:"repairAttempts"`
	SessionRenewed bool      `json:"sessionRenewed"`
	FoldedInto     string    `json:"foldedInto"`
	Folded         int       `json:"folded"`
	Deliveries     []struct {
		ID        string `json:"id"`
		Kind      string `json:"kind"`
		Target    string `json:"target"`
		Status    string `json:"status"`
		Attempts  int    `json:"attempts"`
		LastError string `json:"lastError"`
	} `json:"deliveries"`

	Fields []string // the names of all that is there, sorted
	Body   string
}

// RunPath is where a run is shown.
func RunPath(id string) string { return "/api/hooks/runs/" + id }

// LookUp asks about a run, with a query such as "?wait=1s" or none.
func (s *Server) LookUp(id, query string) Response {
	s.T.Helper()
	return s.Request("GET", RunPath(id)+query, "", "Authorization", "Bearer "+Token)
}

// CancelRun cancels a run.
func (s *Server) CancelRun(id string) Response {
	s.T.Helper()
	return s.Post(RunPath(id)+"/cancel", "")
}

// Shown reads an answer that shows a run.
func (r Response) Shown(t testing.TB) RunView {
	t.Helper()
	if r.Status != 200 || r.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %d %s %s, want 200 and a run", r.Status, r.Header.Get("Content-Type"), r.Body)
	}
	run := RunView{Body: r.Body}
	dec := json.NewDecoder(strings.NewReader(r.Body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&run); err != nil {
		t.Fatalf("the body shows no run: %v\n%s", err, r.Body)
	}
	var all map[string]any
	if err := json.Unmarshal([]byte(r.Body), &all); err != nil {
		t.Fatal(err)
	}
	run.Fields = slices.Sorted(maps.Keys(all))
	return run
}

// Run shows a run as it is now.
func (s *Server) Run(id string) RunView {
	s.T.Helper()
	return s.LookUp(id, "").Shown(s.T)
}

// Waiting waits until a run is put aside.
func (s *Server) Waiting(id string) (run RunView) {
	s.T.Helper()
	Eventually(s.T, "the run is put aside", func() bool {
		run = s.Run(id)
		return run.Status == "waiting"
	})
	return run
}

// Ended waits for the end of a run.
func (s *Server) Ended(id string) RunView {
	s.T.Helper()
	run := s.LookUp(id, "?wait=30s").Shown(s.T)
	if !engine.Status(run.Status).Ended() {
		s.T.Fatalf("the run does not end: %s", run.Body)
	}
	return run
}

// EndedWithin is Ended for a run that may take longer than others.
func (s *Server) EndedWithin(patience time.Duration, id string) (run RunView) {
	s.T.Helper()
	Within(s.T, patience, "the run ends", func() bool {
		run = s.LookUp(id, "?wait=30s").Shown(s.T)
		return engine.Status(run.Status).Ended()
	})
	return run
}

// ReasonOf is why a run failed, as operators are told.
func (s *Server) ReasonOf(id string) string {
	s.T.Helper()
	reason, _ := s.AdminRequest("GET", "/hooks/runs/"+id, "").Field(s.T, "reason").(string)
	return reason
}

// Accept sends an asynchronous agent request, and returns the id of its run.
func (s *Server) Accept(body string, headers ...string) string {
	s.T.Helper()
	resp := s.Post("/api/hooks/agent", body, headers...)
	id, _ := resp.Field(s.T, "runId").(string)
	if resp.Status != 202 || !RunIDPattern.MatchString(id) {
		s.T.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	return id
}

// WantFields checks that a run shows what every run does, and the given fields, and no others.
func (r RunView) WantFields(t testing.TB, more ...string) {
	t.Helper()
	want := append([]string{"acceptedAt", "action", "attempts", "chatId", "hook", "runId", "runner", "status"}, more...)
	slices.Sort(want)
	if !slices.Equal(r.Fields, want) {
		t.Errorf("a %s run has the fields %v, want %v", r.Status, r.Fields, want)
	}
}

// listedRun is a run in a list of the admin API, which shows more than the run API.
type listedRun struct {
	RunView
	Client      string    `json:"client"`
	CancelledBy string    `json:"cancelledBy"`
	Reason      string    `json:"reason"`
	AgainOf     string    `json:"againOf"`
	Preview     string    `json:"preview"`
	Tier        string    `json:"tier"`
	Test        bool      `json:"test"`
	Sync        bool      `json:"sync"`
	SentOut     any       `json:"sentOut"`
	RequestID   string    `json:"requestId"`
	QueuedMs    int64     `json:"queuedMs"`
	DurationMs  int64     `json:"durationMs"`
	Usage       []api.Use `json:"usage"`
}

// Listed are the ids of the runs that the admin API lists, and the cursor for more.
func (s *Server) Listed(query string) (ids []string, cursor string) {
	s.T.Helper()
	resp := s.AdminRequest("GET", "/hooks/runs"+query, "")
	var page struct {
		Runs       []listedRun `json:"runs"`
		Cursor     string      `json:"cursor"`
		SearchedTo string      `json:"searchedTo"`
	}
	dec := json.NewDecoder(strings.NewReader(resp.Body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&page); err != nil || resp.Status != 200 || page.Runs == nil {
		s.T.Fatalf("got %d %s, %v", resp.Status, resp.Body, err)
	}
	for _, run := range page.Runs {
		ids = append(ids, run.RunID)
	}
	return ids, page.Cursor
}

// Hold sends a sync request whose answer is handed over when it comes.
func (s *Server) Hold(ctx context.Context, body string, headers ...string) <-chan Response {
	answer := make(chan Response, 1)
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/api/hooks/agent", strings.NewReader(body))
	if err != nil {
		s.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+Token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answer <- Response{Body: err.Error()}
			return
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		answer <- Response{resp.StatusCode, resp.Header, string(data)}
	}()
	return answer
}

const uuidPattern = `[0-9a-f]{8}-[0-9a-f]{4}-[1-9a-f][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`

// What runs are called, and how text of others is marked in their messages.
var (
	RunIDPattern     = regexp.MustCompile(`^` + uuidPattern + `$`)
	FreshChatPattern = regexp.MustCompile(`^hook:` + uuidPattern + `$`)
	Markers          = regexp.MustCompile(`(?s)^\[EXTERNAL WEBHOOK DATA\] id=([0-9a-f]{8}) [^\n]*\n(.*)\n\[END EXTERNAL WEBHOOK DATA\] id=([0-9a-f]{8})$`)
)

// Bulk starts a bulk action, and waits for its end. The query has do and the filter.
func (s *Server) Bulk(query, body string) (ended Response) {
	s.T.Helper()
	ended = s.AdminRequest("POST", "/hooks/bulk?"+query, body)
	var action struct{ ID, State string }
	if err := json.Unmarshal([]byte(ended.Body), &action); err != nil || ended.Status != 202 || action.ID == "" {
		s.T.Fatalf("bulk %s: got %d %s, %v", query, ended.Status, ended.Body, err)
	}
	Eventually(s.T, "the bulk action ends", func() bool {
		ended = s.AdminRequest("GET", "/hooks/bulk/"+action.ID, "")
		return json.Unmarshal([]byte(ended.Body), &action) == nil && action.State != "running"
	})
	return ended
}
