package integration

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/npmtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// TestAimock tries the openai runner with aimock, a server that nobody here wrote. It answers as testdata/aimock/fixtures.json
// says, which has troubles of many kinds in it.
// slowly is how long a test waits for programs that need a minute to start on a busy machine.
const slowly = modeltest.Patience

func TestAimock(t *testing.T) {
	t.Parallel()
	url := startAimock(t)
	for name, try := range map[string]func(*testing.T, string){
		"answers":                           answersThroughAimock,
		"streams":                           streamsThroughAimock,
		"repairs":                           repairsThroughAimock,
		"fails for a reason":                failsThroughAimock,
		"waits for a server that is busy":   waitsForAimock,
		"does not wait for a silent server": doesNotWaitForSilence,
		"cancels":                           cancelsThroughAimock,
		"survives chaos":                    survivesChaos,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try(t, url)
		})
	}
}

var installAimock = npmtest.Packages("testdata/aimock")

// startAimock starts aimock, and returns the URL of its API.
func startAimock(t *testing.T) string {
	t.Helper()
	packages := installAimock(t)
	fixtures, err := filepath.Abs("testdata/aimock/fixtures.json")
	if err != nil {
		t.Fatal(err)
	}
	port := hookstest.FreePort(t)
	startProcess(t, port, "node", filepath.Join(packages, "node_modules/@copilotkit/aimock/dist/cli.js"), "-p", port, "-f", fixtures, "--log-level", "silent")
	return "http://127.0.0.1:" + port + "/v1"
}

// hooksForModel is a hooks directive whose turns go to a model.
func hooksForModel(url string, lines ...string) string {
	return fmt.Sprintf("hooks {\n enabled\n token %s\n runner openai %s {\n model tested\n key key-of-the-model\n %s\n }\n }", hookstest.Token, url, strings.Join(lines, "\n"))
}

func answersThroughAimock(t *testing.T, url string) {
	for _, stream := range []string{"on", "off"} {
		s := hookstest.StartProcess(t, hooksForModel(url, "stream "+stream))
		for message, want := range map[string]string{
			"say hello":     "Hello from aimock, in several chunks.",
			"think first":   "Forty-two.",
			"wait a little": "After a while.",
		} {
			if resp := s.Post("/api/hooks/agent", hookstest.AsJSON(t, map[string]any{"message": message, "syncResponse": true})); resp.Status != 200 || resp.Body != want {
				t.Errorf("stream %s, %s: got %d %s", stream, message, resp.Status, resp.Body)
			}
			if r := s.Ended(s.Accept(hookstest.AsJSON(t, map[string]any{"message": message}))); r.Status != "completed" || r.Reply != want {
				t.Errorf("stream %s, %s: got %s", stream, message, r.Body)
			}
		}
	}
}

func streamsThroughAimock(t *testing.T, url string) {
	s := hookstest.StartProcess(t, hooksForModel(url))
	text, deltas := "", 0
	var last hookstest.RunEvent
	for event := range s.Follow("POST", "/api/hooks/agent", `{"message":"say hello","syncResponse":true}`) {
		switch last = event; event.Name {
		case "delta":
			text += event.Data["text"].(string)
			deltas++
		case "reset":
			text = event.Data["text"].(string)
		}
	}
	if want := "Hello from aimock, in several chunks."; text != want || last.Name != "result" || deltas == 0 {
		t.Errorf("%d deltas told %q, and at last came %+v", deltas, text, last)
	}
}

const urgency = `{"type":"object","properties":{"urgency":{"type":"integer"}},"required":["urgency"],"additionalProperties":false}`

func repairsThroughAimock(t *testing.T, url string) {
	s := hookstest.StartProcess(t, hooksForModel(url))
	resp := s.Post("/api/hooks/agent", `{"message":"what is urgent","syncResponse":true,"responseJsonSchema":`+urgency+`}`)
	if resp.Status != 200 || strings.TrimSpace(resp.Body) != `{"urgency":5}` || resp.Header.Get("X-Service-Schema-Repair-Attempts") != "1" {
		t.Errorf("got %d %s %v", resp.Status, resp.Body, resp.Header)
	}
	resp = s.Post("/api/hooks/agent", `{"message":"never matching","syncResponse":true,"responseJsonSchema":`+urgency+`}`)
	if r := s.Run(resp.Header.Get("X-Service-Run-Id")); resp.Status < 400 || r.Status != "failed" || r.RepairAttempts == 0 {
		t.Errorf("got %d %s, and %s", resp.Status, resp.Body, r.Body)
	}
}

func failsThroughAimock(t *testing.T, url string) {
	s := hookstest.StartProcess(t, hooksForModel(url))
	for message, reason := range map[string]string{
		"call a tool":     "tool",
		"say nothing":     "no text",
		"be cut off":      "finish_reason length",
		"be filtered":     "content_filter",
		"refuse the key":  "401",
		"hang up at once": "",
		"hang up midway":  "",
		"get garbage":     "JSON",
		"get nothing":     "",
		"no fixture here": "404",
	} {
		r := s.Ended(s.Accept(hookstest.AsJSON(t, map[string]any{"message": message})))
		got := s.ReasonOf(r.RunID)
		if r.Status != "failed" || r.Reply != "" || r.Attempts != 1 || got == "" || !strings.Contains(got, reason) {
			t.Errorf("%s: got %s, because %q", message, r.Body, got)
		}
		if strings.Contains(r.ErrorMessage, "aimock") || strings.Contains(got, "key-of-the-model") {
			t.Errorf("%s: %q, because %q", message, r.ErrorMessage, got)
		}
		t.Logf("%s: %s", message, got)
	}
	// Who waits is told so too.
	if resp := s.Post("/api/hooks/agent", `{"message":"hang up midway","syncResponse":true}`); resp.Status < 500 || strings.Contains(resp.Body, "heard in part") {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	// None of these keeps others waiting.
	if resp := s.Post("/api/hooks/agent", `{"message":"say hello","syncResponse":true}`); resp.Status != 200 {
		t.Errorf("afterwards: %d %s", resp.Status, resp.Body)
	}
}

func waitsForAimock(t *testing.T, url string) {
	for message, want := range map[string]string{
		"be busy once": "After the rate limit.", "be overloaded once": "After the overload.", "break down once": "After the breakdown.",
	} {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			s := hookstest.StartProcess(t, hooksForModel(url))
			if r := s.EndedWithin(slowly, s.Accept(hookstest.AsJSON(t, map[string]any{"message": message}))); r.Status != "completed" || r.Reply != want {
				t.Errorf("got %s", r.Body)
			}
		})
	}
	s := hookstest.StartProcess(t, hooksForModel(url))
	id := s.Accept(`{"message":"be overloaded"}`)
	hookstest.Eventually(t, "the run waits", func() bool { r := s.Run(id); return r.Status == "queued" && r.WaitingFor != "" })
	s.CancelRun(id)
	if r := s.Ended(id); r.Status != "cancelled" || r.Reply != "" {
		t.Errorf("got %s", r.Body)
	}
}

func doesNotWaitForSilence(t *testing.T, url string) {
	s := hookstest.StartProcess(t, hooksForModel(url, "idle_timeout 1s"))
	r := s.Ended(s.Accept(`{"message":"speak slowly"}`))
	if reason := s.ReasonOf(r.RunID); r.Status != "failed" || !strings.Contains(reason, "1s") {
		t.Errorf("got %s, because %q", r.Body, reason)
	}
}

func cancelsThroughAimock(t *testing.T, url string) {
	s := hookstest.StartProcess(t, hooksForModel(url))
	id := s.Accept(`{"message":"speak slowly"}`)
	hookstest.Eventually(t, "the run is under way", func() bool { return s.Run(id).Status == "running" })
	s.CancelRun(id)
	if r := s.Ended(id); r.Status != "cancelled" || r.Reply != "" {
		t.Errorf("got %s", r.Body)
	}
	if r := s.Ended(s.Accept(`{"message":"speak slowly","timeoutSeconds":2}`)); r.Status != "timed_out" || r.Reply != "" {
		t.Errorf("got %s", r.Body)
	}
}

// Of many runs under chaos each ends, with the right text or for a reason.
func survivesChaos(t *testing.T, url string) {
	s := hookstest.StartProcess(t, hooksForModel(url))
	const runs = 200
	began := time.Now()
	var ids []string
	for i := range runs {
		message := fmt.Sprintf(`{"message":"run %d under chaos"}`, i)
		if i%10 == 0 { // a stream that is cut
			message = `{"message":"hang up midway"}`
		}
		ids = append(ids, s.Accept(message))
	}
	tally := make(map[string]int)
	for _, id := range ids {
		r := s.EndedWithin(slowly, id)
		switch {
		case r.Status == "completed" && r.Reply == "Order out of chaos.":
			tally["completed"]++
		case r.Status == "failed" && r.Reply == "" && s.ReasonOf(id) != "":
			tally["failed: "+s.ReasonOf(id)]++
		default:
			t.Errorf("got %s", r.Body)
		}
	}
	t.Logf("%d runs in %v:", runs, time.Since(began).Round(time.Millisecond))
	for _, end := range slices.Sorted(maps.Keys(tally)) {
		t.Logf("%d %s", tally[end], end)
	}
	if tally["completed"] == 0 || tally["completed"] == runs {
		t.Errorf("%d of %d runs completed", tally["completed"], runs)
	}
}
