package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

const (
	stormEvents  = 10_000
	stormChats   = 16
	stormClients = 32
	stormTime    = 10 * time.Second
	stormWindow  = 5 * time.Second
	stormMax     = 50 // events in a turn
)

// Ten thousand events in ten seconds are as few turns as `fold 5s 50` allows, and whatever dies meanwhile, each event is in one of
// them, and each turn is told once.
func TestStormIsFoldedOverThreeKills(t *testing.T) {
	t.Parallel()
	seed := newSeed(t)
	s := newStorm(t, seed)
	d := hookstest.NewBinary(t).Deploy(t, onlyWarnings, `hooks {
		enabled
		token `+hookstest.Token+`
		runner http `+s.URL+`/turn
		store bolt `+filepath.Join(t.TempDir(), "hooks.db")+`
		max_attempts 1000
		channel told webhook `+s.URL+`/told {
			secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
		}
		hook alerts {
			action agent
			template "alert {n} of {service}"
			chat_id "alerts:{service}"
			fold 5s 50
			workers 4
			deliver told ops
		}
	}`)
	p := d.Launch(t)
	p.WaitUntilServing(t)
	s.send(d.URL)
	for kill := range 3 {
		enough := int64((kill + 1) * stormEvents / 4)
		hookstest.Within(t, time.Minute, "events are accepted", func() bool { return s.accepted.Load() > enough })
		p.Kill()
		p.WantQuietLog(t)
		p.Over = true
		p = d.Launch(t)
	}
	s.clients.Wait()
	s.hurries.Store(true)
	var runs map[string]stormRun
	defer func() {
		if t.Failed() {
			counts := make(map[string]int)
			for _, run := range runs {
				counts[run.Status]++
			}
			t.Logf("%d turns, %d of them told; runs by status: %v", s.ledTurns(), s.toldTurns(), counts)
		}
	}()
	hookstest.Within(t, 2*time.Minute, "all runs have ended, and all was told", func() bool {
		if s.toldTurns() < s.ledTurns() {
			return false
		}
		runs = exportRuns(t, d.Admin)
		for _, run := range runs {
			if run.Status == "queued" || run.Status == "running" {
				return false
			}
		}
		return true
	})
	s.checkReplies(t, d.URL)
	p.WantQuietLog(t)
	p.Terminate(t)
	p.WantCleanExit(t)
	s.check(t, runs)
}

// storm is the senders of many events, the runner that gets them as turns, and the service that is told of the answers.
type storm struct {
	*httptest.Server
	clients  sync.WaitGroup
	accepted atomic.Int64
	hurries  atomic.Bool
	runIDs   [stormEvents]string // of each event, once its clients are done

	mu     sync.Mutex
	random *rand.Rand
	turns  map[string]*stormTurn // by the run that leads it
	told   map[string][]string   // the texts that were told, by their ids
	faults []string
}

// stormTurn is a turn as the runner sees it.
type stormTurn struct {
	chat    string
	runs    []string
	events  []string // as its message has them
	seenAt  time.Time
	times   int    // how often it came
	message string // the same each time
}

// stormRun is a run in an export.
type stormRun struct {
	RunID, ChatID, Status, FoldedInto string
	Folded, Attempts                  int
	AcceptedAt, StartedAt             time.Time
}

func newStorm(t *testing.T, seed uint64) *storm {
	s := &storm{random: rand.New(rand.NewPCG(seed, 0)), turns: make(map[string]*stormTurn), told: make(map[string][]string)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /turn", s.serveTurn)
	mux.HandleFunc("POST /told", s.serveTold)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

var stormEvent = regexp.MustCompile(`(?m)^alert ([0-9]+) of`)

func (s *storm) serveTurn(w http.ResponseWriter, r *http.Request) {
	var turn struct {
		RunID, ChatID, Message string
		Folded                 []struct{ RunID string }
	}
	if err := json.NewDecoder(r.Body).Decode(&turn); err != nil {
		return // it was cut off
	}
	_, _ = io.Copy(io.Discard, r.Body) // so that the end of the caller is noticed
	seen := &stormTurn{chat: turn.ChatID, seenAt: time.Now(), message: turn.Message}
	for _, run := range turn.Folded {
		seen.runs = append(seen.runs, run.RunID)
	}
	if turn.Folded == nil {
		seen.runs = []string{turn.RunID}
	}
	for _, event := range stormEvent.FindAllStringSubmatch(turn.Message, -1) {
		seen.events = append(seen.events, event[1])
	}
	s.mu.Lock()
	if first := s.turns[turn.RunID]; first == nil {
		s.turns[turn.RunID] = seen
	} else if !slices.Equal(first.runs, seen.runs) || first.message != seen.message {
		s.faults = append(s.faults, fmt.Sprintf("the turn of %s came again with other runs: %d, then %d", turn.RunID, len(first.runs), len(seen.runs)))
	}
	s.turns[turn.RunID].times++
	takes := time.Duration(s.random.Int64N(int64(100 * time.Millisecond)))
	s.mu.Unlock()
	if s.hurries.Load() {
		takes = 0
	}
	select {
	case <-time.After(takes):
		_, _ = io.WriteString(w, "seen by "+turn.RunID)
	case <-r.Context().Done():
	}
}

func (s *storm) serveTold(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var answer struct{ Text string }
	_ = json.Unmarshal(body, &answer)
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.Header.Get("webhook-id")
	s.told[id] = append(s.told[id], answer.Text)
}

func (s *storm) toldTurns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.told)
}

func (s *storm) ledTurns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.turns)
}

// send sends all events, each until it is accepted, evenly over the time of the storm.
func (s *storm) send(url string) {
	began := time.Now()
	for client := range stormClients {
		s.clients.Go(func() {
			http := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
			defer http.CloseIdleConnections()
			for n := client; n < stormEvents; n += stormClients {
				time.Sleep(time.Until(began.Add(stormTime * time.Duration(n) / stormEvents)))
				for s.runIDs[n] == "" {
					s.runIDs[n] = s.post(http, url, n)
				}
				s.accepted.Add(1)
			}
		})
	}
}

// post sends an event, and returns the id of its run if it was accepted, now or before.
func (s *storm) post(client *http.Client, url string, n int) (runID string) {
	req, err := http.NewRequest("POST", url+"/api/hooks/alerts", strings.NewReader(fmt.Sprintf(`{"n":%d,"service":"web-%d"}`, n, n%stormChats)))
	if err != nil {
		return ""
	}
	req.Header.Set("Authorization", "Bearer "+hookstest.Token)
	req.Header.Set("Idempotency-Key", fmt.Sprint("event-", n))
	resp, err := client.Do(req)
	if err != nil {
		time.Sleep(10 * time.Millisecond) // it is being started
		return ""
	}
	defer resp.Body.Close()
	var answer struct{ RunID string }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusAccepted {
		return ""
	}
	return answer.RunID
}

// exportRuns reads all runs from the admin endpoint, by their ids. There are none while Caddy is being started.
func exportRuns(t *testing.T, admin string) map[string]stormRun {
	runs := make(map[string]stormRun)
	resp, err := http.Get(admin + "/hooks/export?of=runs")
	if err != nil {
		return map[string]stormRun{"": {Status: "queued"}}
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var run stormRun
		if err := json.Unmarshal(lines.Bytes(), &run); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		runs[run.RunID] = run
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return runs
}

// check checks what came of all events.
func (s *storm) check(t *testing.T, runs map[string]stormRun) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fault := range s.faults {
		t.Error(fault)
	}
	if len(runs) != stormEvents {
		t.Errorf("there are %d runs, want %d", len(runs), stormEvents)
	}
	events := make(map[string]string) // by run
	for n, id := range s.runIDs {
		events[id] = fmt.Sprint(n)
	}
	if len(events) != stormEvents {
		t.Errorf("%d events became %d runs", stormEvents, len(events))
	}

	carriedOut, repeated := 0, 0
	chats := make(map[string][]string) // the runs that led turns
	for leader, turn := range s.turns {
		chats[turn.chat] = append(chats[turn.chat], leader)
		repeated += turn.times - 1
		var want []string
		for i, id := range turn.runs {
			run := runs[id]
			into, folded := leader, 0
			if i == 0 {
				into = ""
				if len(turn.runs) > 1 {
					folded = len(turn.runs)
				}
			}
			if run.Status != "completed" || run.FoldedInto != into || run.Folded != folded || run.ChatID != turn.chat {
				t.Errorf("run %d of %d in the turn of %s is %+v", i+1, len(turn.runs), leader, run)
			}
			want = append(want, events[id])
			carriedOut++
		}
		if !slices.Equal(turn.events, want) {
			t.Errorf("the message of a turn has the events %v, want %v", turn.events, want)
		}
		told := s.told["msg_"+strings.ReplaceAll(leader, "-", "")+"_0"]
		for _, text := range told {
			if text != "seen by "+leader {
				t.Errorf("of the turn of %s was told %q", leader, text)
			}
		}
		if len(told) == 0 {
			t.Errorf("nothing was told of the turn of %s", leader)
		}
	}
	if carriedOut != stormEvents {
		t.Errorf("%d events are in turns, want each of %d in one", carriedOut, stormEvents)
	}
	if len(s.told) != len(s.turns) {
		t.Errorf("%d answers were told of %d turns", len(s.told), len(s.turns))
	}

	fewest, allowed := 0, 0
	for chat, leaders := range chats {
		slices.Sort(leaders) // ids go by time
		var all []string
		for i, leader := range leaders {
			turn := s.turns[leader]
			all = append(all, turn.runs...)
			if len(turn.runs) == stormMax {
				continue
			}
			first := runs[leader]
			if waited := turn.seenAt.Sub(first.AcceptedAt); waited < stormWindow-precision {
				t.Errorf("a turn with %d events began after %v in %s", len(turn.runs), waited, chat)
			}
			if i+1 < len(leaders) && first.Attempts == 1 && runs[leaders[i+1]].AcceptedAt.Before(first.StartedAt.Add(-precision)) {
				t.Errorf("a turn with %d events left out one of %s that was there", len(turn.runs), chat)
			}
		}
		if !slices.IsSorted(all) {
			t.Errorf("the runs of %s were not carried out in order", chat)
		}
		fewest += (len(all) + stormMax - 1) / stormMax
		allowed += turnsByRule(all, runs)
	}
	t.Logf("%d events became %d turns; by the rule at most %d, and at the very least %d. %d turns were repeated", len(runs), len(s.turns), allowed, fewest, repeated)
	if len(s.turns) > allowed {
		t.Errorf("%d turns, the rule allows %d", len(s.turns), allowed)
	}
}

// checkReplies asks for the last run of each turn, which has the answer of the turn.
func (s *storm) checkReplies(t *testing.T, url string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for leader, turn := range s.turns {
		resp, err := hookstest.TryRequest("GET", url+hookstest.RunPath(turn.runs[len(turn.runs)-1]), "", "Authorization", "Bearer "+hookstest.Token)
		if err != nil {
			t.Fatal(err)
		}
		var run struct{ Reply string }
		if err := json.Unmarshal([]byte(resp.Body), &run); err != nil || run.Reply != "seen by "+leader {
			t.Errorf("a run of the turn of %s is %s, %v", leader, resp.Body, err)
		}
	}
}

// precision is that of times in an export, and of the clocks of two processes.
const precision = 20 * time.Millisecond

// turnsByRule is how many turns the runs of a chat are if each turn begins when its window is over, or when it is full.
func turnsByRule(ids []string, runs map[string]stormRun) (turns int) {
	for i := 0; i < len(ids); turns++ {
		end := runs[ids[i]].AcceptedAt.Add(stormWindow)
		first := i
		for i < len(ids) && i-first < stormMax && runs[ids[i]].AcceptedAt.Before(end) {
			i++
		}
	}
	return turns
}
