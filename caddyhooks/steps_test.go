package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// operatorView is the part of a run that only operators see and that tests of steps and attempts look at.
type operatorView struct {
	Status     string
	AcceptedAt time.Time
	FinishedAt time.Time
	Steps      []struct {
		Phase     string
		StartedAt time.Time
		Seconds   float64
		Tier      string
		Bytes     int
		Errors    []string
	}
	Deliveries []struct {
		ID      string
		History []attemptView
	}
}

type attemptView struct {
	At      time.Time
	Seconds float64
	Status  int
	Error   string
}

func viewOfOperator(s *hookstest.Server, id string) (view operatorView) {
	s.T.Helper()
	resp := s.AdminRequest("GET", "/hooks/runs/"+id, "")
	if err := json.Unmarshal([]byte(resp.Body), &view); err != nil || resp.Status != 200 {
		s.T.Fatalf("got %d %s, %v", resp.Status, resp.Body, err)
	}
	return view
}

func TestStepsAreShownToOperators(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
				switch {
				case tn.Text("message") == "hold":
					<-r.Context().Done()
				case tn.Text("phase") == "repair":
					_, _ = io.WriteString(w, `{"n":1}`)
				default:
					_, _ = io.WriteString(w, `{"m":1}`)
				}
			})
			site := hookstest.Hooks(rn, "store "+store)
			s := hookstest.StartSite(t, site)
			resp := s.Post("/api/hooks/agent", `{"message":"x","model":"smart","syncResponse":true,"responseJsonSchema":{"required":["n"]}}`)
			if resp.Status != 200 {
				t.Fatalf("got %d %s", resp.Status, resp.Body)
			}
			repaired := rn.Next().Text("runId")
			rn.Next()
			held := s.Accept(`{"message":"hold"}`)
			rn.Next()

			check := func() {
				t.Helper()
				run := viewOfOperator(s, repaired)
				want := []string{"queued  0 []", `turn smart 7 [at the top level: lacks "n", which the schema requires]`, "repair smart 7 []"}
				var got []string
				at := run.AcceptedAt
				for _, step := range run.Steps {
					got = append(got, fmt.Sprint(step.Phase, " ", step.Tier, " ", step.Bytes, " ", step.Errors))
					end := step.StartedAt.Add(time.Duration(step.Seconds * float64(time.Second)))
					if step.StartedAt.Before(at.Add(-2*time.Millisecond)) || end.After(run.FinishedAt.Add(2*time.Millisecond)) {
						t.Errorf("a step began at %v and was over at %v, in a run from %v to %v", step.StartedAt, end, run.AcceptedAt, run.FinishedAt)
					}
					at = step.StartedAt
				}
				if strings.Join(got, "\n") != strings.Join(want, "\n") {
					t.Errorf("got\n%q\nwant\n%q", got, want)
				}
				if body := s.Run(repaired).Body; strings.Contains(body, "steps") || strings.Contains(body, "lacks") {
					t.Errorf("callers see %s", body)
				}
			}
			check()
			if steps := viewOfOperator(s, held).Steps; len(steps) != 2 || steps[0].Phase != "queued" || steps[1].Phase != "turn" {
				t.Errorf("a run under way has the steps %+v", steps)
			}
			s.CancelRun(held)
			if store == "bolt" {
				s.Restart(site)
				check()
			}
		})
	}
}

func TestAttemptsOfADeliveryAreShownToOperators(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			site := strings.Replace(echoWithCallbacks, "runner echo", "runner echo\nstore "+store, 1)
			s := hookstest.StartSite(t, site)
			rc := startMoodyReceiver(t, "no, token=s3cret")
			id := s.CallBack("the answer", rc.URL+"/path-of-the-receiver?token=s3cret")
			hookstest.Eventually(t, "the delivery is given up", func() bool { return len(s.Deliveries("status=dead")) == 1 })
			delivery := s.Deliveries("status=dead")[0].ID
			rc.status.Store(http.StatusOK)
			s.AdminRequest("POST", "/hooks/deliveries/"+delivery+"/retry", "")
			hookstest.Eventually(t, "it arrives", func() bool { return s.Delivery(delivery).Status == "delivered" })
			if store == "bolt" {
				s.Restart(site)
			}

			one := s.AdminRequest("GET", "/hooks/deliveries/"+delivery, "").Body
			var details struct{ History []attemptView }
			if err := json.Unmarshal([]byte(one), &details); err != nil {
				t.Fatal(err)
			}
			run := viewOfOperator(s, id)
			for _, history := range [][]attemptView{details.History, run.Deliveries[0].History} {
				if len(history) != 2 || history[0].Status != 410 || history[0].Error != "the receiver answered 410" || history[1].Status != 200 ||
					history[1].Error != "" || history[0].At.Before(run.AcceptedAt) || history[1].At.Before(history[0].At) {
					t.Errorf("the attempts are %+v", history)
				}
			}
			for _, attempts := range []any{details.History, run.Deliveries[0].History} {
				if text := hookstest.AsJSON(t, attempts); strings.Contains(text, "s3cret") || strings.Contains(text, "path-of") {
					t.Errorf("the attempts are %s", text)
				}
			}
			if body := s.Run(id).Body; strings.Contains(body, "history") {
				t.Errorf("callers see %s", body)
			}
			if body := s.AdminRequest("GET", "/hooks/deliveries", "").Body; strings.Contains(body, "history") {
				t.Errorf("a list shows %s", body)
			}
		})
	}
}
