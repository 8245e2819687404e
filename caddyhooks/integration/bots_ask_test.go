package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// startAskingBots starts Caddy with a hook for each chat whose runs have to be approved there. The services sign with their own libraries.
func startAskingBots(t *testing.T, rn *hookstest.Runner, more func(place hookstest.ButtonPlace) string) (chats *hookstest.ButtonChats, caddy *hookstest.Server, site string) {
	t.Helper()
	chats = hookstest.StartButtonChats(t)
	signer := startSigner(t)
	chats.Sign = func(service, body string) []string {
		signed := signer.sign(t, question{Sender: service, Secret: chats.Secret(service), URL: "http://127.0.0.1/", Body: body, Time: time.Now().Unix()})
		if signed.vouched == "" && service != "telegram" {
			t.Errorf("no library of %s vouches for the signature", service)
		}
		return signed.headers
	}
	site = chats.Lines()
	for _, place := range hookstest.ButtonPlaces {
		site += fmt.Sprintf("hook deploy-%s {\n action agent\n template \"deploy {what}\"\n ask %s %s before run %s\n}\n", place.Service, place.Channel, place.To, more(place))
	}
	site = hookstest.Hooks(rn, site)
	return chats, hookstest.StartProcess(t, site), site
}

// startDeploy starts a run that has to be approved.
func startDeploy(t *testing.T, caddy *hookstest.Server, place hookstest.ButtonPlace) (runID string) {
	t.Helper()
	resp := caddy.Post("/api/hooks/deploy-"+place.Service, `{"what":"it"}`)
	_, rest, ok := strings.Cut(resp.Body, `"runId":"`)
	if resp.Status != 202 || !ok {
		t.Fatalf("answered %d %s", resp.Status, resp.Body)
	}
	return rest[:36]
}

// A question in each chat is answered by a button, also after Caddy was killed. A cancelled run closes its question.
func TestBotsAskInChats(t *testing.T) {
	t.Parallel()
	rn := hookstest.StartRunner(t, nil)
	chats, caddy, site := startAskingBots(t, rn, func(place hookstest.ButtonPlace) string { return "by " + place.Person(1) })
	runs, asked := map[string]string{}, map[string]hookstest.ButtonMessage{}
	for _, place := range hookstest.ButtonPlaces {
		runs[place.Service] = startDeploy(t, caddy, place)
		asked[place.Service] = chats.Asked(place.Chat, 1)
	}
	// That what was posted is in the store.
	hookstest.Eventually(t, "the questions are delivered", func() bool { return len(caddy.Deliveries("status=delivered")) == len(runs) })
	caddy.Kill()
	caddy.Load(site)
	for _, place := range hookstest.ButtonPlaces {
		m := asked[place.Service]
		if got := chats.Press(caddy, m, "yes", place.Person(2), "Eve"); got != "You may not answer this question." {
			t.Errorf("%s: somebody else is told %q", place.Service, got)
		}
		if got := chats.Press(caddy, m, "yes", place.Person(1), "Ana"); got != "You answered yes." {
			t.Errorf("%s: is told %q", place.Service, got)
		}
		rn.Next()
		if run := caddy.Ended(runs[place.Service]); run.Status != "completed" {
			t.Errorf("%s: the run is %s", place.Service, run.Status)
		}
		if text := strings.ReplaceAll(chats.Closed(m), `\`, ""); !strings.Contains(text, "Answered by Ana ("+place.Person(1)+"): yes") {
			t.Errorf("%s: closed with %q", place.Service, text)
		}
		if all := chats.Messages(place.Chat); len(all) != 1 || all[0].Edits != 1 {
			t.Errorf("%s: the chat has %+v", place.Service, all)
		}
		cancelled := startDeploy(t, caddy, place)
		m = chats.Asked(place.Chat, 2)
		if resp := caddy.CancelRun(cancelled); resp.Status/100 != 2 {
			t.Fatalf("answered %d %s", resp.Status, resp.Body)
		}
		if text := chats.Closed(m); !strings.Contains(text, "no answer is needed any more") {
			t.Errorf("%s: closed with %q", place.Service, text)
		}
		if got := chats.Press(caddy, m, "yes", place.Person(1), "Ana"); got != "This question is closed." {
			t.Errorf("%s: is told %q", place.Service, got)
		}
	}
	if len(rn.Turns) != 0 {
		t.Error("the agent was asked once more")
	}
}

// The deadline of a question passes while Caddy is down: when it is back, the run has ended as it should, and the chats know.
func TestDeadlineOfAQuestionOverARestart(t *testing.T) {
	t.Parallel()
	const open = 3 * time.Second
	rn := hookstest.StartRunner(t, nil)
	chats, caddy, site := startAskingBots(t, rn, func(hookstest.ButtonPlace) string { return "3s else drop" })
	runs, asked := map[string]string{}, map[string]hookstest.ButtonMessage{}
	for _, place := range hookstest.ButtonPlaces {
		runs[place.Service] = startDeploy(t, caddy, place)
		asked[place.Service] = chats.Asked(place.Chat, 1)
	}
	hookstest.Eventually(t, "the questions are delivered", func() bool { return len(caddy.Deliveries("status=delivered")) >= len(runs) })
	last := time.Now()
	caddy.Kill()
	time.Sleep(time.Until(last.Add(open))) // so that nobody is there when it passes
	caddy.Load(site)
	for _, place := range hookstest.ButtonPlaces {
		if run := caddy.Ended(runs[place.Service]); run.Status != "cancelled" {
			t.Errorf("%s: the run is %s", place.Service, run.Status)
		}
		if text := chats.Closed(asked[place.Service]); !strings.Contains(text, "Nobody answered in time, so the answer is: no.") {
			t.Errorf("%s: closed with %q", place.Service, text)
		}
		if got := chats.Press(caddy, asked[place.Service], "yes", place.Person(1), "Ana"); got != "This question is closed." {
			t.Errorf("%s: is told %q", place.Service, got)
		}
	}
	if len(rn.Turns) != 0 {
		t.Error("the agent was asked")
	}
}
