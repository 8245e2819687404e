package caddyhooks_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// noRunner is a runner that cannot be reached: nothing listens on the first port of all.
const noRunner = "runner http http://127.0.0.1:1/a-secret-path\n"

func outageHooks(more string) string {
	return "hooks {\n\tenabled\n\ttoken " + hookstest.Token + "\n" + noRunner + more + "\n}"
}

func TestARunWhoseAgentIsUnreachableWaits(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("hello"))
	callbacks := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, outageHooks(hookstest.WithCallbacks+"hook custom {\n action wake\n }"))
	id := s.Accept(`{"message":"hello","timeoutSeconds":1,"callbackUrl":"` + callbacks.URL + `"}`)
	s.Post("/api/hooks/custom", `{}`).WantJSON(t, `{"status":"accepted","chatId":"webhook:default"}`)
	hookstest.Eventually(t, "the run waits", func() bool { return strings.Contains(s.Run(id).Body, "waitingFor") })
	r := s.LookUp(id, "")
	if text, _ := r.Field(t, "waitingFor").(string); r.Field(t, "status") != "queued" || text != "The agent cannot be reached. The run starts as soon as the agent is back." {
		t.Errorf("the run is %s", r.Body)
	}
	if admin := s.AdminRequest("GET", "/hooks/runs?status=queued", ""); !strings.Contains(admin.Body, `"waitingFor":"The agent cannot be reached.`) {
		t.Errorf("the admin API lists %s", admin.Body)
	}
	s.Reload(hookstest.Hooks(rn, hookstest.WithCallbacks+"hook custom {\n action wake\n }"))
	if r := s.Ended(id); r.Status != "completed" || r.Attempts != 1 || strings.Contains(r.Body, "waitingFor") {
		t.Errorf("after the reload the run is %s", r.Body)
	}
	if got := callbacks.Next(); got.Header.Get("X-Service-Run-Status") != "completed" {
		t.Errorf("the callback is %+v", got)
	}
}

// An operator should not have to wait for five refusals to read why nothing happens.
func TestARunnerThatCannotBeReachedIsLoggedAtOnce(t *testing.T) {
	s := hookstest.NewServer(t)
	readLog := logFile(t, s)
	s.Load(outageHooks(""))
	id := s.Accept(`{"message":"hello"}`)
	hookstest.Eventually(t, "the run waits", func() bool { return strings.Contains(s.Run(id).Body, "waitingFor") })
	log := readLog()
	wantInLog(t, log, 1, "the runner cannot be reached")
	wantInLog(t, log, 0, "the runner does not take on runs", "a-secret-path")
	if !strings.Contains(log, id) || !strings.Contains(log, "connection refused") {
		t.Errorf("the log does not say which run, or why:\n%s", log)
	}
	if runners := s.AdminRequest("GET", "/hooks/runners", ""); !strings.Contains(runners.Body, `"unreachable"`) {
		t.Errorf("the runners are %s", runners.Body)
	}
	for range 5 {
		s.Accept(`{"message":"hello"}`)
	}
	hookstest.Eventually(t, "its runs are left alone", func() bool { return strings.Contains(readLog(), "the runner does not take on runs") })
	wantInLog(t, readLog(), 1, "the runner cannot be reached", "the runner does not take on runs")
}

func TestARunThatNobodyTakesOnExpires(t *testing.T) {
	callbacks := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, outageHooks("queue_time 10m\n"+hookstest.WithCallbacks+"hook quick {\n action wake\n queue_time 1s\n }"))
	long := s.Accept(`{"message":"hello"}`)
	hookstest.Eventually(t, "it is known why no run starts", func() bool { return strings.Contains(s.Run(long).Body, "waitingFor") })
	id := s.Accept(`{"message":"hello","queueTimeSeconds":1,"callbackUrl":"` + callbacks.URL + `"}`)
	s.Post("/api/hooks/quick", `{}`)
	got := callbacks.Next()
	if got.Header.Get("X-Service-Run-Status") != "expired" || !strings.Contains(got.Body, "No agent took the run on within its queue time of 1 seconds.") {
		t.Errorf("the callback is %+v", got)
	}
	if r := s.Ended(id); r.Status != "expired" || r.Attempts != 0 || !strings.Contains(r.ErrorMessage, "queue time") {
		t.Errorf("the run is %s", r.Body)
	} else if strings.Contains(r.Body, "reaching the runner") || strings.Contains(got.Body, "reaching the runner") {
		t.Errorf("callers are told of the runner: %s, %s", r.Body, got.Body)
	}
	const reason = "no runner took the run on within its queue time of 1s: reaching the runner: "
	if told, _ := s.AdminRequest("GET", "/hooks/runs/"+id, "").Field(t, "reason").(string); !strings.HasPrefix(told, reason) {
		t.Errorf("operators are told %q", told)
	}
	hookstest.Eventually(t, "the wake expires too", func() bool {
		ids, _ := s.Listed("?status=expired")
		return len(ids) == 2
	})
	if r := s.Run(long); r.Status != "queued" && r.Status != "running" { // while the runner is tried again
		t.Errorf("the run with the time of the instance is %s", r.Body)
	}
}

func TestQueueTimesAreAtMostThoseAround(t *testing.T) {
	s := hookstest.StartSite(t, outageHooks("queue_time 10m"))
	for body, want := range map[string]string{
		`{"message":"x","queueTimeSeconds":601}`:        "queueTimeSeconds must be from 1 to 600",
		`{"message":"x","queueTimeSeconds":0}`:          "queueTimeSeconds must be at least 1",
		`{"message":"x","queueTimeSeconds":-1}`:         "queueTimeSeconds must be at least 1",
		`{"message":"x","queueTimeSeconds":"60"}`:       "queueTimeSeconds must be a whole number",
		`{"message":"x","queueTimeSeconds":1e30}`:       "queueTimeSeconds must be a whole number",
		`{"message":"x","queueTimeSeconds":9999999999}`: "queueTimeSeconds must be from 1 to 600",
	} {
		s.Post("/api/hooks/agent", body).WantError(t, 400, want)
	}
	s.Accept(`{"message":"x","queueTimeSeconds":600}`)
	s.PutMapping("fine", `{"queueTimeSeconds":600}`)
	s.AdminRequest("PUT", "/hooks/mappings/long", `{"queueTimeSeconds":601}`).WantAdminError(t, 400, "queueTimeSeconds must be from 1 to 600")
}

func TestCallersOfAnAgentThatIsUnreachableAreToldAtOnce(t *testing.T) {
	s := hookstest.StartSite(t, outageHooks("workers 1"))
	for i := range 12 { // of which the first ones try, and the others are not even accepted
		resp := s.Post("/api/hooks/agent", `{"message":"hello","syncResponse":true,"timeoutSeconds":600}`)
		resp.WantError(t, 503, "The agent is not available right now")
		if resp.Header.Get("Retry-After") == "" || strings.Contains(resp.Body, "127.0.0.1") {
			t.Errorf("answer %d is %v %s", i, resp.Header, resp.Body)
		}
	}
	if ids, _ := s.Listed("?status=failed"); len(ids) < 5 || len(ids) > 8 {
		t.Errorf("%d calls were tried", len(ids))
	}
	if ids, _ := s.Listed("?status=queued"); len(ids) != 0 {
		t.Errorf("%d calls are queued", len(ids))
	}
}

// An agent that is busy is asked again within the time of the caller.
func TestCallersOfABusyAgentWait(t *testing.T) {
	var calls atomic.Int32
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
		if calls.Add(1) <= 2 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = w.Write([]byte("at last"))
	})
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	if resp := s.Post("/api/hooks/agent", `{"message":"hello","syncResponse":true}`); resp.Status != 200 || resp.Body != "at last" {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
}

func TestACallerIsToldThatItsRunWasNeverStarted(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	defer close(release)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1")+"\n"+strings.Replace(hookstest.Hooks(rn, "path /other"), "hooks {", "hooks other {", 1))
	s.Accept(`{"message":"hold"}`)
	rn.Next()
	waiting := s.Hold(t.Context(), `{"message":"hello","syncResponse":true,"timeoutSeconds":1}`)
	s.Post("/other/agent", `{"message":"hold","syncResponse":true,"timeoutSeconds":1}`).WantError(t, 504, "did not finish within 1 seconds")
	hookstest.ReceiveWithin(t, "the caller is answered", waiting).WantError(t, 504, "waited its whole time of 1 seconds for a free worker")
}

func TestOperatorsAreToldAtOnceThatTheAgentIsUnreachable(t *testing.T) {
	s := hookstest.StartSite(t, outageHooks("store memory\nworkers 8"))
	stream := openEvents(t, s, "?topics=runs", "")
	stream.next("hello")
	for range 6 { // of chats of their own, so that all are tried
		s.Accept(`{"message":"hello"}`)
	}
	var overview string
	hookstest.Eventually(t, "the overview tells", func() bool {
		overview = s.AdminRequest("GET", "/hooks/overview", "").Body
		return strings.Contains(overview, `"kind":"runner_unreachable"`)
	})
	if !strings.Contains(overview, `"text":"the agent has been out of reach for`) || !strings.Contains(overview, `"detail":"reaching the runner: `) || strings.Contains(overview, "a-secret-path") {
		t.Errorf("got %s", overview)
	}
	late := s.Accept(`{"message":"never tried"}`)
	const why = `"waitingFor":"The agent cannot be reached.`
	_, row, _ := strings.Cut(stream.runIs(late, "queued").data, late)
	if row, _, _ = strings.Cut(row, `"runId"`); !strings.Contains(row, why) {
		t.Errorf("the event tells %s", row)
	}
	if list := s.AdminRequest("GET", "/hooks/runs?limit=1", "").Body; !strings.Contains(list, why) {
		t.Errorf("the list has %s", list)
	}
}

// Whoever asks about a runner that cannot be reached gets the same answer everywhere, from the first refusal on, although its only run is
// tried less and less often.
func TestHealthMetricsAndPageAgreeAboutARunner(t *testing.T) {
	s := hookstest.StartSite(t, outageHooks("store memory\nhealth /healthz"))
	wantHealth(t, s, "/healthz", 200, `{"live":true,"ready":true,"webhooks":"on"}`)
	s.Accept(`{"message":"hello"}`)
	var refused time.Time
	hookstest.Eventually(t, "the runner is unreachable", func() bool {
		runner := runnersOf(t, s)["default"]
		if runner.State == "unreachable" {
			refused = *runner.LastErrorAt
		}
		return !refused.IsZero()
	})
	for refusals := 1; refusals < 2; {
		wantHealth(t, s, "/healthz", 503, `{"live":true,"ready":false,"webhooks":"on","reasons":["runner_unreachable"]}`)
		if up := scrape(t, s)[key("runner_up", "runner", "default")]; up != 0 {
			t.Errorf("after %d refusals runner_up is %v", refusals, up)
		}
		overview := s.AdminRequest("GET", "/hooks/overview", "").Body
		if !strings.Contains(overview, `"kind":"runner_unreachable"`) || !strings.Contains(overview, "and 1 run") && !strings.Contains(overview, "and 0 runs") {
			t.Errorf("after %d refusals the overview is %s", refusals, overview)
		}
		runner := runnersOf(t, s)["default"]
		if runner.State != "unreachable" {
			t.Errorf("after %d refusals the runner is %+v", refusals, runner)
		}
		if t.Failed() {
			return
		}
		if runner.LastErrorAt.After(refused) {
			refused = *runner.LastErrorAt
			refusals++
		}
	}
}

// Whoever asks whether a runner takes on runs gets one answer, whenever the runner goes or comes back.
func TestAllSayTheSameWhenARunnerGoesAndComesBack(t *testing.T) {
	start := func(address string) (agent *http.Server, at string) {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		agent = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })}
		agent.SetKeepAlivesEnabled(false) // a run sent into a connection that breaks may have been taken on
		go func() { _ = agent.Serve(listener) }()
		t.Cleanup(func() { _ = agent.Close() })
		return agent, listener.Addr().String()
	}
	agent, address := start("127.0.0.1:0")
	good := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, "hooks {\n\tenabled\n\ttoken "+hookstest.Token+"\n\trunner http http://"+address+"\n\thealth /healthz\n\tstore memory\n}\n"+
		"hooks other {\n\tenabled\n\ttoken "+hookstest.Token+"\n\trunner shaky http http://"+address+"\n\trunner good http "+good.URL+
		"\n\trunner_for smart good\n\tpath /other\n\thealth /other-health\n\tstore memory\n}")
	admin := strings.TrimPrefix(s.Admin, "http://")
	ask := func(args ...string) string {
		out, errs, _ := command(t, append([]string{"--address", admin}, args...)...)
		return out + errs
	}
	// Each says whether the runner of the name is down.
	tellers := map[string]func(instance, runner string) bool{
		"the health of the site": func(instance, _ string) bool {
			path := map[string]string{"default": "/healthz", "other": "/other-health"}[instance]
			return strings.Contains(s.Request("GET", path, "").Body, `"runner_unreachable"`)
		},
		"the health of the admin API": func(_, runner string) bool {
			return strings.Contains(s.AdminRequest("GET", "/hooks/health", "").Body, `the runner \"`+runner+`\" cannot be reached`)
		},
		"metrics": func(instance, runner string) bool {
			up, known := scrape(t, s)[keyOf(instance, "runner_up", "runner", runner)]
			if !known {
				t.Errorf("runner_up of %s is not there", runner)
			}
			return up == 0
		},
		"the list of runners": func(instance, runner string) bool {
			for _, state := range runnerStatesOf(t, s.AdminRequest("GET", "/hooks/instances/"+instance+"/runners", "").Body) {
				if state.Name == runner {
					return state.State == "unreachable"
				}
			}
			return false
		},
		"the overview": func(instance, _ string) bool {
			return strings.Contains(s.AdminRequest("GET", "/hooks/instances/"+instance+"/overview", "").Body, `"kind":"runner_unreachable"`)
		},
		"caddy hooks runners": func(instance, runner string) bool {
			for _, state := range runnerStatesOf(t, ask("runners", "--json", "--instance", instance)) {
				if state.Name == runner {
					return state.State == "unreachable"
				}
			}
			return false
		},
		"caddy hooks status": func(instance, _ string) bool {
			return strings.Contains(ask("status", "--instance", instance), "out of reach")
		},
		"caddy hooks health": func(instance, _ string) bool {
			return strings.Contains(ask("health", "--instance", instance), "cannot be reached")
		},
	}
	instances := []struct{ name, runner, path, body string }{
		{"default", "default", "/api/hooks/agent", `{"message":"a"}`},
		{"other", "shaky", "/other/agent", `{"message":"a","model":"balanced"}`},
	}
	for round := range 4 {
		down := round%2 == 0
		if down {
			_ = agent.Close()
		} else {
			agent, _ = start(address)
		}
		for _, in := range instances {
			if resp := s.Post(in.path, in.body); resp.Status != 202 {
				t.Fatalf("got %d %s", resp.Status, resp.Body)
			}
			hookstest.Eventually(t, "the health notices", func() bool { return tellers["the health of the admin API"](in.name, in.runner) == down })
			for teller, tell := range tellers {
				if got := tell(in.name, in.runner); got != down && (teller != "caddy hooks health" || in.name == "default") {
					t.Errorf("round %d, %s: %s says that the runner is down: %v", round, in.name, teller, got)
				}
			}
		}
	}
}

func runnerStatesOf(t *testing.T, list string) (states []runnerView) {
	t.Helper()
	if err := json.Unmarshal([]byte(list), &states); err != nil {
		t.Fatalf("%s: %v", list, err)
	}
	return states
}

// Health names a runner that is down whatever else is wrong, as metrics do.
func TestHealthNamesARunnerBesideABrokenStore(t *testing.T) {
	s := hookstest.StartSite(t, outageHooks("store unwritable\nhealth /healthz"))
	t.Cleanup(func() { unwritable.Store(nil) })
	isDown := func() bool { return scrape(t, s)[key("runner_up", "runner", "default")] == 0 }
	s.Accept(`{"message":"hello"}`)
	hookstest.Eventually(t, "the runner is unreachable", isDown)
	var broken error = &engine.StoreBrokenError{Reason: "it has a torn page"}
	unwritable.Store(&broken)
	s.Post("/api/hooks/wake", `{"text":"a"}`)
	before := isDown()
	health := s.Request("GET", "/healthz", "").Body
	for before != isDown() { // it changed meanwhile
		before, health = isDown(), s.Request("GET", "/healthz", "").Body
	}
	want := `{"live":false,"ready":false,"webhooks":"on","reasons":["store_broken"]}`
	if before {
		want = `{"live":false,"ready":false,"webhooks":"on","reasons":["store_broken","runner_unreachable"]}`
	}
	if health != want {
		t.Errorf("health says %s, want %s", health, want)
	}
}
