package integration

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// laterAgent takes every turn on, and answers later at some of the nodes. All is under the lock of the cluster.
type laterAgent struct {
	*cluster
	taken    map[string]bool // by path of the reply address
	turnsOf  map[string]int  // by run: how many turns were taken on
	repeated int             // turns that came again, and were known
	open     int             // turns that have no answer yet
	answered int
}

// replyAddress is where the answer to a turn goes.
type replyAddress struct{ URL, Token string }

// takeOn reports whether a turn is to be begun. It may have come before: Caddy was killed before it had stored that it was taken on.
func (a *laterAgent) takeOn(run string, reply replyAddress) (begins bool) {
	path := pathOf(reply.URL)
	if a.taken[path] {
		a.repeated++
		return false
	}
	a.taken[path] = true
	a.turnsOf[run]++
	a.open++
	return true
}

func pathOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Path
}

// answer has two answer a turn at once, each with something else, at nodes of their choice, until both are told whose answer counts.
func (a *laterAgent) answer(turn int, run string, reply replyAddress, seed uint64) {
	counts := make([]bool, 2)
	var both sync.WaitGroup
	for i := range counts {
		both.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			counts[i] = a.post(random, reply, fmt.Sprintf("turn %d by %d", turn, i))
		})
	}
	both.Wait()
	if counts[0] == counts[1] {
		a.Errorf("run %s: of two answers these count: %v", run, counts)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if counts[1] {
		a.history.Turns[turn].Reply = fmt.Sprintf("turn %d by 1", turn)
	}
	a.open--
	a.answered++
}

// post sends an answer until a node says what became of it, and reports whether it counts.
func (a *laterAgent) post(random *rand.Rand, reply replyAddress, text string) bool {
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); {
		node := a.nodes[random.IntN(len(a.nodes))]
		req, err := http.NewRequest("POST", node.URL+pathOf(reply.URL), strings.NewReader(fmt.Sprintf(`{"text":%q}`, text)))
		if err != nil {
			a.Error(err)
			return false
		}
		req.Header.Set("Authorization", "Bearer "+reply.Token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := impatient.Do(req)
		if err == nil {
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			switch resp.StatusCode {
			case http.StatusOK:
				return true
			case http.StatusConflict:
				return false
			case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusTooManyRequests:
			default:
				a.Errorf("an answer got %d %s", resp.StatusCode, body)
				return false
			}
		}
		time.Sleep(time.Duration(50+random.IntN(200)) * time.Millisecond) // the node is in trouble
	}
	a.Errorf("nobody takes the answer %q", text)
	return false
}

// A turn that an agent has taken on is not begun again, its answer counts once, and no run is lost, whatever happens to nodes and database.
func TestThreeNodesLoseNoTurnThatWasTakenOn(t *testing.T) {
	if !inNodesNetwork(t, "-nodes.duration", nodesDuration.String(), "-seed", fmt.Sprint(*seedFlag)) {
		return
	}
	seed := newSeed(t)
	c := newClusterOf(t, pgtest.New(t, pgtest.Config{Listen: back + "1"}), shortLease, seed, mostlyShort)
	c.later = &laterAgent{cluster: c, taken: make(map[string]bool), turnsOf: make(map[string]int)}
	c.startNodes(3, c.database.TCP(databaseName, databaseName, databaseName))
	cs := c.startCallers(seed)
	n := newNemesis(c, seed)
	n.torment(*nodesDuration, allTroubles)
	c.settle(cs)
	hookstest.Within(t, time.Minute, "the agent has heard whose answers count", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.later.open == 0
	})
	c.wantNoFaults()
	c.mu.Lock()
	defer c.mu.Unlock()
	for run, turns := range c.later.turnsOf {
		if turns != 1 {
			t.Errorf("%d turns of run %s were taken on", turns, run)
		}
	}
	counts := countHistory(&c.history)
	t.Logf("%v, %+v, %d turns came again", n.counts, counts, c.later.repeated)
	for _, end := range c.history.Stored {
		if end.Status != "completed" && c.later.turnsOf[end.Run] > 0 {
			t.Errorf("run %s is %s, though its turn was taken on and answered", end.Run, end.Status)
		}
	}
	if counts.acknowledged < 50 || c.later.answered < 50 {
		t.Errorf("that was not enough to tell: %d answers", c.later.answered)
	}
}
