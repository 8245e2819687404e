package caddyhooks_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// reload loads another configuration in place of the one that is served, and waits until the old servers are gone. They
// drop connections that clients keep, and reset those that they have not taken yet.
func (s *server) reload(directives string) {
	s.t.Helper()
	s.load(directives)
	s.settle()
}

func (s *server) settle() {
	s.t.Helper()
	http.DefaultClient.CloseIdleConnections()
	good := 0
	eventually(s.t, "the site is served", func() bool {
		if _, err := tryRequest("GET", s.url+"/api/hooks/none", "", "Connection", "close"); err != nil {
			good = 0
		} else {
			good++
		}
		return good == 3
	})
}

// restart stops Caddy and starts it again on the same data, which is what a new process does.
func (s *server) restart(directives string) {
	s.t.Helper()
	s.stop()
	s.load(directives)
	s.settle()
}

func (s *server) stop() {
	s.t.Helper()
	if err := caddy.Stop(); err != nil {
		s.t.Fatalf("stopping Caddy: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestQueuedRunsAreCarriedOutAfterARestart(t *testing.T) {
	rn, _, release := heldRunner(t)
	callbacks := startReceiver(t)
	config := hooks(rn, "workers 1\n drain_timeout 50ms\n"+withCallbacks+"hook custom {\n action agent\n template \"{a}\"\n }")
	s := startSite(t, config)
	ended := s.accept(`{"message":"before all"}`)
	before := s.ended(ended)
	rn.next()
	ids := []string{s.accept(`{"message":"hold","chatId":"c"}`)}
	rn.next()
	const queued = 20
	for i := range queued {
		switch i % 3 {
		case 0:
			ids = append(ids, s.accept(fmt.Sprintf(`{"message":"%d","chatId":"c","callbackUrl":"%s"}`, i, callbacks.URL)))
		case 1:
			ids = append(ids, s.post("/api/hooks/custom", fmt.Sprintf(`{"a":"%d"}`, i)).field(t, "runId").(string))
		case 2:
			s.post("/api/hooks/wake", fmt.Sprintf(`{"text":"%d","chatId":"c"}`, i))
		}
	}
	s.stop()
	if len(rn.turns) != 0 {
		t.Errorf("at the stop a turn began: %v", rn.next().body)
	}
	close(release)
	s.load(config)
	s.settle()

	var order []string // of the chat
	seen := make(map[string]int)
	for range 1 + queued {
		tn := rn.next()
		seen[tn.text("runId")]++
		if tn.text("chatId") == "c" {
			text := tn.text("message")
			if parts := markers.FindStringSubmatch(text); parts != nil {
				text = parts[2]
			}
			order = append(order, text)
		}
	}
	if want := []string{"hold", "0", "2", "3", "5", "6", "8", "9", "11", "12", "14", "15", "17", "18"}; !slices.Equal(order, want) {
		t.Errorf("the order in the chat is %v, want %v", order, want)
	}
	for _, id := range ids {
		if r := s.ended(id); r.Status != "completed" || r.Attempts != 1 || seen[id] != 1 {
			t.Errorf("%d turns of %s", seen[id], r.body)
		}
	}
	for i := 0; i < queued; i += 3 {
		if got := callbacks.next(); got.header.Get("X-Service-Run-Status") != "completed" {
			t.Errorf("the callback is %+v", got)
		}
	}
	if after := s.run(ended); after.body != before.body {
		t.Errorf("what had ended was %s and is %s", before.body, after.body)
	}
	rn.wantNoTurn(s)
	if len(callbacks.got) != 0 {
		t.Errorf("another callback came: %+v", callbacks.next())
	}
}

func TestRunThatIsUnderWayAtAStopIsStartedAgain(t *testing.T) {
	rn, gone, release := heldRunner(t)
	config := hooks(rn, "drain_timeout 50ms\n max_attempts 1")
	s := startSite(t, config)
	id := s.accept(`{"message":"hold","chatId":"c"}`)
	first := rn.next()
	for range 3 {
		s.restart(config)
		if got := receiveWithin(t, "the runner sees its connection close", gone); got != id {
			t.Errorf("the turn of %s was ended, want %s", got, id)
		}
		again := rn.next()
		for _, name := range []string{"Idempotency-Key", "X-Service-Run-Id", "X-Service-Chat-Id"} {
			if got, want := again.header.Get(name), first.header.Get(name); got != want {
				t.Errorf("%s is %q, and was %q", name, got, want)
			}
		}
		if got := again.header.Get("Idempotency-Key"); got != id+":turn" {
			t.Errorf("Idempotency-Key is %q", got)
		}
		if asJSON(t, again.body) != asJSON(t, first.body) {
			t.Errorf("the turn is %v, and was %v", again.body, first.body)
		}
		// A stop is not the fault of the run.
		if r := s.run(id); r.Status != "running" || r.Attempts != 1 {
			t.Errorf("got %s", r.body)
		}
	}
	close(release)
	if r := s.ended(id); r.Status != "completed" || r.Attempts != 1 {
		t.Errorf("got %s", r.body)
	}
}

func TestSyncRunIsRepeatedAfterAStopOnlyIfItHasACallback(t *testing.T) {
	for _, where := range []string{"running", "queued"} {
		for _, callback := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, callback %v", where, callback), func(t *testing.T) {
				rn, _, release := heldRunner(t)
				callbacks := startReceiver(t)
				config := hooks(rn, "workers 1\n drain_timeout 50ms\n"+withCallbacks)
				s := startSite(t, config)
				if where == "queued" {
					s.accept(`{"message":"hold first"}`)
					rn.next()
				}
				body := `{"message":"hold","syncResponse":true}`
				if callback {
					body = `{"message":"hold","syncResponse":true,"callbackUrl":"` + callbacks.URL + `"}`
				}
				held := s.hold(t.Context(), body, key("k")...)
				if where == "running" {
					rn.next()
				}
				eventually(t, "the caller waits", func() bool { return goroutinesIn(s, "engine.(*Engine).Do(") == 1 })
				s.stop()
				resp := receiveWithin(t, "the caller is answered", held)
				resp.wantError(t, 503)
				id := resp.header.Get("X-Service-Run-Id")
				if resp.header.Get("Retry-After") == "" || id == "" {
					t.Errorf("got the headers %v", resp.header)
				}
				close(release)
				s.load(config)
				s.settle()
				if where == "queued" {
					rn.next() // the one before it
				}
				if !callback {
					if r := s.ended(id); r.Status != "failed" || r.Reply != "" {
						t.Errorf("got %s", r.body)
					}
					rn.wantNoTurn(s)
					// Nothing came of it, so the key is free.
					s.post("/api/hooks/agent", body, key("k")...).wantNew(t, 200)
					return
				}
				if got := rn.next(); got.text("runId") != id || got.header.Get("Idempotency-Key") != id+":turn" {
					t.Errorf("the turn is %v", got.body)
				}
				if got := callbacks.next(); got.body != "hold" || got.header.Get("X-Service-Run-Id") != id {
					t.Errorf("the callback is %+v", got)
				}
				if r := s.ended(id); r.Status != "completed" || r.Attempts != 1 {
					t.Errorf("got %s", r.body)
				}
				// Who repeats the request, as the 503 asked for, is told what came of it.
				if again := s.post("/api/hooks/agent", body, key("k")...); again.status != 200 || again.body != "hold" || again.header.Get("X-Service-Run-Id") != id {
					t.Errorf("the repeated request is answered %d %s", again.status, again.body)
				}
				rn.wantNoTurn(s)
			})
		}
	}
}

func TestCallbackThatAStopBreaksOffIsSentAfterTheNextStart(t *testing.T) {
	rn := startRunner(t, nil)
	arrived, hangs := make(chan string, 10), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- r.Header.Get("X-Service-Attempt") + " " + r.Header.Get("webhook-id")
		select {
		case <-hangs:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(receiver.Close)
	config := hooks(rn, "drain_timeout 50ms\n callbacks {\n allow 127.0.0.1\n ports *\n secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n }")
	s := startSite(t, config)
	id := s.accept(`{"message":"a","callbackUrl":"` + receiver.URL + `"}`)
	first := receiveWithin(t, "the callback comes", arrived)
	s.stop()
	close(hangs)
	s.load(config)
	s.settle()
	if again := receiveWithin(t, "the callback comes again", arrived); again != first || !strings.HasPrefix(again, "1 msg_") {
		t.Errorf("it came as %q, and before as %q", again, first)
	}
	eventually(t, "it is recorded", func() bool { return s.run(id).Deliveries[0].Status == "delivered" })
	if d := s.run(id).Deliveries[0]; d.Attempts != 1 || d.LastError != "" {
		t.Errorf("got %+v", d)
	}
	if len(rn.turns) != 1 {
		t.Errorf("there were %d turns", len(rn.turns))
	}
}

func TestKilledProcessStartsRunsAgain(t *testing.T) {
	for _, maxAttempts := range []int{1, 2} {
		t.Run(fmt.Sprintf("max_attempts %d", maxAttempts), func(t *testing.T) {
			rn, _, release := heldRunner(t)
			callbacks := startReceiver(t)
			d := newBinary(t).deploy(t, "", hooks(rn, fmt.Sprintf("max_attempts %d\n", maxAttempts)+withCallbacks))
			p := d.start(t)
			s := &server{t: t, url: p.url, admin: p.admin}
			async := s.accept(`{"message":"hold","callbackUrl":"` + callbacks.URL + `"}`)
			rn.next()
			s.hold(t.Context(), `{"message":"hold","syncResponse":true}`)
			lost := rn.next().text("runId")
			s.hold(t.Context(), `{"message":"hold","syncResponse":true,"callbackUrl":"`+callbacks.URL+`"}`)
			told := rn.next().text("runId")
			queued := s.accept(`{"message":"last","chatId":"` + s.run(async).ChatID + `"}`)
			p.kill()
			http.DefaultClient.CloseIdleConnections()
			close(release)
			d.start(t)
			if r := s.ended(lost); r.Status != "failed" || !strings.Contains(r.ErrorMessage, "restarted") {
				t.Errorf("a run whose caller is gone: %s", r.body)
			}
			for _, id := range []string{async, told} {
				r := s.ended(id)
				switch {
				case maxAttempts == 1 && (r.Status != "failed" || !strings.Contains(r.ErrorMessage, "went down")):
					t.Errorf("a run that must not be started again: %s", r.body)
				case maxAttempts == 2 && (r.Status != "completed" || r.Attempts != 2 || r.Reply != "hold"):
					t.Errorf("a run that is started again: %s", r.body)
				}
			}
			if r := s.ended(queued); r.Status != "completed" || r.Attempts != 1 {
				t.Errorf("a run that was queued: %s", r.body)
			}
			for range 2 {
				got := callbacks.next()
				id := got.header.Get("X-Service-Run-Id")
				if (id != async && id != told) || got.header.Get("X-Service-Run-Status") != s.run(id).Status {
					t.Errorf("the callback is %+v", got)
				}
			}
			var turns []string
			for len(rn.turns) > 0 {
				turns = append(turns, rn.next().text("runId"))
			}
			slices.Sort(turns)
			want := []string{queued}
			if maxAttempts == 2 {
				want = []string{async, told, queued}
			}
			slices.Sort(want)
			if !slices.Equal(turns, want) {
				t.Errorf("after the kill there were turns of %v, want %v", turns, want)
			}
		})
	}
}

func TestTerminatedProcessAnswersWhoWaits(t *testing.T) {
	rn, _, _ := heldRunner(t)
	d := newBinary(t).deploy(t, "", hooks(rn, "drain_timeout 1s"))
	p := d.start(t)
	s := &server{t: t, url: p.url, admin: p.admin}
	id := s.accept(`{"message":"hold"}`)
	rn.next()
	answer := make(chan response, 1)
	go func() {
		resp, err := tryRequest("GET", s.url+runPath(id)+"?wait=5m", "", "Authorization", "Bearer "+token)
		if err != nil {
			resp.body = err.Error()
		}
		answer <- resp
	}()
	eventually(t, "somebody waits", func() bool { return goroutinesIn(s, "engine.(*Engine).Find(") == 1 })
	p.terminate(t)
	if r := receiveWithin(t, "who waits is answered", answer).shown(t); r.Status != "running" {
		t.Errorf("got %s", r.body)
	}
	p.wantCleanExit(t)
	p.wantQuietLog(t)
}

func TestLiveSettingsSurviveARestart(t *testing.T) {
	rn := startRunner(t, nil)
	config := "hooks {\n runner http " + rn.URL + "\n}"
	s := startSite(t, config)
	s.patchSettings(`{"enabled":true,"token":["` + token + `","second"],"memoryPreset":"ops_support","defaultTimeoutSeconds":7,"maxPayloadSize":1234}`)
	s.putMapping("plain", `{"action":"agent","messageTemplate":"got {a}","metadata":{"k":"v"},"idempotencyHeader":"X-Delivery"}`)
	s.putMapping("signed", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"secret"}`)
	before := s.adminRequest("GET", "/hooks/settings", "")
	s.restart(config)
	if after := s.adminRequest("GET", "/hooks/settings", ""); after.body != before.body {
		t.Errorf("settings were\n%s\nand are\n%s", before.body, after.body)
	}
	if resp := s.request("POST", "/api/hooks/plain", `{"a":1}`, "X-Service-Token", "second"); resp.status != 202 {
		t.Errorf("got %d %s", resp.status, resp.body)
	}
	tn := rn.next()
	tn.wantMemory(t, "ops_support")
	if tn.text("message") != "got 1" || fmt.Sprint(tn.body["timeoutSeconds"]) != "7" {
		t.Errorf("the turn is %v", tn.body)
	}
	if resp := s.request("POST", "/api/hooks/signed", `{}`, "X-Sig", signature("secret", "{}")); resp.status != 200 {
		t.Errorf("got %d %s", resp.status, resp.body)
	}
	s.request("POST", "/api/hooks/signed", `{}`, "X-Sig", signature("••••", "{}")).wantError(t, 401)
	s.adminRequest("DELETE", "/hooks/mappings/plain", "")
	s.restart(config)
	s.post("/api/hooks/plain", `{}`).wantError(t, 404)
}

// problems are what GET shows of live settings that are not in force.
func (s *server) problems() []string {
	s.t.Helper()
	shown, _ := s.adminRequest("GET", "/hooks/settings", "").field(s.t, "problems").([]any)
	var problems []string
	for _, p := range shown {
		problems = append(problems, p.(string))
	}
	return problems
}

func (s *server) wantProblems(t testing.TB, want ...[]string) {
	t.Helper()
	got := s.problems()
	if len(got) != len(want) {
		t.Errorf("the problems are %q, want %d of them", got, len(want))
		return
	}
	for i, words := range want {
		for _, word := range words {
			if !strings.Contains(got[i], word) {
				t.Errorf("the problem %q does not speak of %q", got[i], word)
			}
		}
	}
}

// misfits are a configuration under which live settings were made, and another one under which some do not fit any more.
func misfits(t *testing.T) (s *server, fitting, unfitting string) {
	t.Helper()
	t.Setenv("CADDYHOOKS_TEST_SECRET", "from the environment")
	fitting = "hooks {\n enabled\n token " + token + "\n channel team log\n" + withCallbacks + "}"
	unfitting = "hooks {\n enabled\n token " + token + "\n max_timeout 60s\n}"
	s = startSite(t, fitting)
	s.putMapping("fine", `{"action":"agent","syncResponse":true,"messageTemplate":"fine"}`)
	s.putMapping("slow", `{"action":"agent","syncResponse":true,"timeoutSeconds":600,"messageTemplate":"slow"}`)
	s.putMapping("signed", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"{env.CADDYHOOKS_TEST_SECRET}"}`)
	s.putMapping("routed", `{"action":"agent","deliver":true,"channel":"team","to":"general"}`)
	s.putMapping("calling", `{"action":"agent","callbackUrl":"http://127.0.0.1:9/"}`)
	s.patchSettings(`{"defaultTimeoutSeconds":120,"memoryPreset":"general_chat"}`)
	if err := os.Unsetenv("CADDYHOOKS_TEST_SECRET"); err != nil { // Setenv puts it back
		t.Fatal(err)
	}
	return s, fitting, unfitting
}

var theMisfits = [][]string{
	{"defaultTimeoutSeconds", "60"},
	{"hook calling", "callbackUrl"},
	{"hook routed", "channel"},
	{"hook signed", "hmacSecret"},
	{"hook slow", "timeoutSeconds", "60"},
}

func TestLiveSettingsThatDoNotFitAreLeftOutAtAStart(t *testing.T) {
	s, fitting, unfitting := misfits(t)
	s.wantProblems(t)
	s.restart(unfitting)
	s.wantProblems(t, theMisfits...)
	if resp := s.post("/api/hooks/fine", `{}`); resp.status != 200 || resp.body != "fine" {
		t.Errorf("what fits is answered %d %s", resp.status, resp.body)
	}
	settings := s.adminRequest("GET", "/hooks/settings", "")
	if settings.field(t, "defaultTimeoutSeconds") != 60.0 || settings.field(t, "memoryPreset") != "general_chat" {
		t.Errorf("the settings are %s", settings.body)
	}
	for _, name := range []string{"slow", "signed", "routed", "calling"} {
		s.request("POST", "/api/hooks/"+name, `{}`, "Authorization", "Bearer "+token, "X-Sig", signature("from the environment", "{}")).wantError(t, 404)
	}

	t.Run("and are no hindrance for other changes", func(t *testing.T) {
		s.putMapping("another", `{"action":"agent","syncResponse":true,"messageTemplate":"another"}`)
		s.patchSettings(`{"memoryPreset":"ops_support"}`)
		s.adminRequest("PUT", "/hooks/mappings/bad", `{"action":"agent","timeoutSeconds":600}`).wantAdminError(t, 400, "timeoutSeconds")
		if resp := s.post("/api/hooks/another", `{}`); resp.body != "another" {
			t.Errorf("got %d %s", resp.status, resp.body)
		}
		s.wantProblems(t, theMisfits...)
	})
	t.Run("and not for a reload", func(t *testing.T) {
		s.reload(unfitting + "\nrespond /version new")
		s.wantProblems(t, theMisfits...)
		if resp := s.post("/api/hooks/fine", `{}`); resp.status != 200 {
			t.Errorf("got %d %s", resp.status, resp.body)
		}
	})
	t.Run("and are kept", func(t *testing.T) {
		s.restart(unfitting)
		s.wantProblems(t, theMisfits...)
	})
	t.Run("and can be put right", func(t *testing.T) {
		s.putMapping("slow", `{"action":"agent","syncResponse":true,"timeoutSeconds":60,"messageTemplate":"faster"}`)
		s.patchSettings(`{"defaultTimeoutSeconds":30}`)
		s.wantProblems(t, theMisfits[1:4]...)
		if resp := s.post("/api/hooks/slow", `{}`); resp.body != "faster" {
			t.Errorf("got %d %s", resp.status, resp.body)
		}
	})
	t.Run("and can be deleted", func(t *testing.T) {
		if resp := s.adminRequest("DELETE", "/hooks/mappings/calling", ""); resp.status != 204 {
			t.Errorf("got %d %s", resp.status, resp.body)
		}
		s.wantProblems(t, theMisfits[2:4]...)
		s.adminRequest("DELETE", "/hooks/mappings/calling", "").wantAdminError(t, 404, "calling")
	})
	t.Run("and come back with what they need", func(t *testing.T) {
		t.Setenv("CADDYHOOKS_TEST_SECRET", "from the environment")
		s.restart(fitting)
		s.wantProblems(t)
		if resp := s.request("POST", "/api/hooks/signed", `{}`, "X-Sig", signature("from the environment", "{}")); resp.status != 200 {
			t.Errorf("got %d %s", resp.status, resp.body)
		}
	})
}

// Only what nobody has touched since is excused.
func TestChangeThatDoesNotFitIsRefusedAlthoughWhatItReplacesDoesNotFitEither(t *testing.T) {
	s, _, unfitting := misfits(t)
	s.restart(unfitting)
	s.adminRequest("PUT", "/hooks/mappings/slow", `{"action":"agent","timeoutSeconds":700}`).wantAdminError(t, 400, "timeoutSeconds")
	s.adminRequest("PUT", "/hooks/mappings/signed", `{"authMode":"hmac","hmacHeader":"X-Other","hmacSecret":"{env.CADDYHOOKS_TEST_NONE}"}`).wantAdminError(t, 400, "hmacSecret")
	s.adminRequest("PATCH", "/hooks/settings", `{"defaultTimeoutSeconds":61}`).wantAdminError(t, 400, "defaultTimeoutSeconds")
	s.wantProblems(t, theMisfits...)
}

func TestTokenThatIsNotThereLeavesWebhooksOff(t *testing.T) {
	t.Setenv("CADDYHOOKS_TEST_TOKEN", token)
	s := startSite(t, "hooks {\n enabled\n}")
	s.patchSettings(`{"token":"{env.CADDYHOOKS_TEST_TOKEN}"}`)
	s.putMapping("fine", `{}`)
	if resp := s.post("/api/hooks/fine", `{}`); resp.status != 200 {
		t.Fatalf("got %d %s", resp.status, resp.body)
	}
	if err := os.Unsetenv("CADDYHOOKS_TEST_TOKEN"); err != nil {
		t.Fatal(err)
	}
	s.restart("hooks {\n enabled\n}")
	s.wantProblems(t, []string{"token"})
	s.post("/api/hooks/fine", `{}`).wantError(t, 404)
	s.request("POST", "/api/hooks/fine", `{}`, "Authorization", "Bearer {env.CADDYHOOKS_TEST_TOKEN}").wantError(t, 404)
	s.request("POST", "/api/hooks/fine", `{}`, "Authorization", "Bearer ").wantError(t, 404)
	s.patchSettings(`{"token":"` + token + `"}`)
	s.wantProblems(t)
	if resp := s.post("/api/hooks/fine", `{}`); resp.status != 200 {
		t.Errorf("got %d %s", resp.status, resp.body)
	}
}

func TestLiveSettingsThatDoNotFitRefuseAReload(t *testing.T) {
	s, fitting, unfitting := misfits(t)
	for name, directives := range map[string]string{
		"all": unfitting,
		"one": strings.Replace(fitting, "channel team log", "", 1),
	} {
		if err := s.tryLoad(directives); err == nil || !strings.Contains(err.Error(), "live settings") {
			t.Errorf("%s: got the error %v", name, err)
		}
	}
	s.settle()
	s.wantProblems(t)
	if resp := s.post("/api/hooks/slow", `{}`); resp.status != 200 || resp.body != "slow" {
		t.Errorf("got %d %s", resp.status, resp.body)
	}
	if resp := s.request("POST", "/api/hooks/signed", `{}`, "X-Sig", signature("from the environment", "{}")); resp.status != 200 {
		t.Errorf("got %d %s", resp.status, resp.body)
	}
}

func TestLogsHoldNothingOfLiveSettings(t *testing.T) {
	log := filepath.Join(t.TempDir(), "default.log")
	s := newServer(t)
	s.globals = "log {\n output file " + log + "\n level DEBUG\n}"
	t.Setenv("CADDYHOOKS_TEST_SECRET", loudSecret)
	const fitting, unfitting = "hooks {\n enabled\n}", "hooks {\n enabled\n max_timeout 60s\n}"
	s.load(fitting)
	s.patchSettings(`{"token":"` + loudToken + `"}`)
	s.putMapping("slow", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"`+loudSecret+`","timeoutSeconds":600,"messageTemplate":"very private words {a}"}`)
	s.putMapping("gone", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"{env.CADDYHOOKS_TEST_SECRET}","chatId":"very private words"}`)
	if err := s.tryLoad(unfitting); err == nil {
		t.Error("a configuration that does not fit was loaded")
	}
	if err := os.Unsetenv("CADDYHOOKS_TEST_SECRET"); err != nil {
		t.Fatal(err)
	}
	s.restart(unfitting)
	s.wantProblems(t, []string{"hook gone"}, []string{"hook slow"})
	for _, problem := range s.problems() {
		wantNoSecrets(t, "a problem", problem, "very private words")
	}
	s.request("POST", "/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer "+loudToken)
	s.stop()
	data, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(data), "is left out") {
		t.Fatalf("the log does not speak of what was left out: %v\n%s", err, data)
	}
	wantNoSecrets(t, "the log", string(data), "very private words")
}
