package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/nodescheck"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// cluster is several Caddys on machines of their own, one database, and a runner, all of which put down what they see.
type cluster struct {
	*testing.T
	database *pgtest.Server
	nodes    []*clusterNode
	runner   *httptest.Server
	began    time.Time

	mu      sync.Mutex
	random  *rand.Rand // for turns
	history nodescheck.History
	hurry   bool                 // turns take no time any more
	takes   func() time.Duration // how long a turn takes; under mu
	letGo   chan struct{}        // closed when turns are not to wait any more
	later   *laterAgent          // the runner takes turns on, if it is set

	wasAcknowledged, wasStarted map[string]bool // by run
	unstartedOf                 map[string]int  // runs by chat
}

// clusterNode is one Caddy. Its name is its address.
type clusterNode struct {
	*machine
	*hookstest.Deployment
	name    string
	process *hookstest.Process
}

// databaseName is that of the database of a cluster, and of its role.
const databaseName = "hooks"

// newCluster starts a database and a runner, and then so many Caddys. How long turns take is up to takes, which gets chance from the seed.
func newCluster(t *testing.T, nodes int, lease time.Duration, seed uint64, takes func(*rand.Rand) time.Duration) *cluster {
	t.Helper()
	c := newClusterOf(t, pgtest.New(t, pgtest.Config{Listen: back + "1"}), lease, seed, takes)
	c.startNodes(nodes, c.database.TCP(databaseName, databaseName, databaseName))
	return c
}

// newClusterOf is a cluster without nodes.
func newClusterOf(t *testing.T, database *pgtest.Server, lease time.Duration, seed uint64, takes func(*rand.Rand) time.Duration) *cluster {
	t.Helper()
	c := &cluster{
		T: t, database: database, began: time.Now(), random: rand.New(rand.NewPCG(seed, 1)), letGo: make(chan struct{}),
		wasAcknowledged: make(map[string]bool), wasStarted: make(map[string]bool), unstartedOf: make(map[string]int),
	}
	c.history.Lease = lease
	c.takes = func() time.Duration { return takes(c.random) }
	database.Exec(t, "postgres", "CREATE ROLE "+databaseName+" LOGIN PASSWORD '"+databaseName+"'")
	database.Exec(t, "postgres", "CREATE DATABASE "+databaseName+" OWNER "+databaseName)
	l, err := net.Listen("tcp", front+"1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.runner = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(c.carryOut)}}
	c.runner.Start()
	t.Cleanup(func() {
		c.runner.CloseClientConnections()
		c.runner.Close()
	})
	return c
}

// startNodes starts Caddys, and waits until all of them serve.
func (c *cluster) startNodes(count int, dsn string) {
	c.Helper()
	for n := 1; n <= count; n++ {
		node := &clusterNode{machine: newMachine(c.T, n)}
		node.name = node.front
		node.Deployment = &hookstest.Deployment{
			Binary:  hookstest.NewBinary(c.T),
			URL:     "http://" + node.front + ":8080",
			Admin:   "http://" + node.front + ":2019",
			Config:  filepath.Join(c.TempDir(), "Caddyfile"),
			Env:     []string{"HOOKS_DSN=" + dsn},
			Prepare: node.moveIn,
		}
		async := ""
		if c.later != nil {
			async = " {\n			async 1h\n		}\n		public_url " + node.URL
		}
		text := fmt.Sprintf(`{
	admin %s:2019
	persist_config off
	%s
}
%s {
	hooks {
		enabled
		runner http %s/turn%s
		store postgres {env.HOOKS_DSN} {
			lease %v
		}
		max_attempts 1000
	}
}
`, node.front, onlyWarnings, node.URL, c.runner.URL, async, c.history.Lease)
		if err := os.WriteFile(node.Config, []byte(text), 0o600); err != nil {
			c.Fatal(err)
		}
		node.process = node.Launch(c.T)
		c.nodes = append(c.nodes, node)
	}
	for _, node := range c.nodes {
		c.waitUntilReady(node)
	}
	resp, err := hookstest.TryRequest("PATCH", c.nodes[0].Admin+"/hooks/settings", `{"token":"`+tokenOf(0)+`"}`, "Content-Type", "application/json")
	if err != nil || resp.Status != 200 {
		c.Fatalf("the first token is answered %d %s, %v", resp.Status, resp.Body, err)
	}
}

// waitUntilReady waits until a node serves, and has its store.
func (c *cluster) waitUntilReady(node *clusterNode) {
	c.Helper()
	hookstest.Within(c.T, time.Minute, node.name+" is ready", func() bool {
		select {
		case <-node.process.Exited:
			c.Fatalf("Caddy exited\n%s", node.process.Log.Last(20))
		default:
		}
		resp, err := c.get(node.Admin + "/hooks/overview")
		return err == nil && resp.Status == 200
	})
}

// shortPatience is how long tests wait for an answer of a node that may be cut off.
const shortPatience = 10 * time.Second

var impatient = &http.Client{Timeout: shortPatience, Transport: &http.Transport{DisableKeepAlives: true}}

// get asks a node, which may be cut off.
func (c *cluster) get(url string) (hookstest.Response, error) {
	resp, err := impatient.Get(url)
	if err != nil {
		return hookstest.Response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return hookstest.Response{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}, err
}

// now is the time of the history.
func (c *cluster) now() time.Duration { return time.Since(c.began) }

// carryOut is the runner. It answers each turn with something else.
func (c *cluster) carryOut(w http.ResponseWriter, r *http.Request) {
	var body struct {
		RunID, ChatID, Message string
		Reply                  replyAddress
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		c.Errorf("a turn is not JSON: %v", err)
	}
	_, _ = io.Copy(io.Discard, r.Body) // read on, so that the server notices when the node goes away
	node, _, _ := net.SplitHostPort(r.RemoteAddr)
	c.mu.Lock()
	if c.later != nil && !c.later.takeOn(body.RunID, body.Reply) {
		c.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
		return
	}
	n := len(c.history.Turns)
	reply := fmt.Sprintf("turn %d", n)
	if c.later != nil {
		reply += " by 0" // or by 1, as laterAgent.answer finds out
	}
	c.history.Turns = append(c.history.Turns, nodescheck.Turn{Run: body.RunID, Chat: body.ChatID, Node: node, Text: requestIn(body.Message), Reply: reply, Began: c.now()})
	if !c.wasStarted[body.RunID] {
		c.wasStarted[body.RunID] = true
		c.unstartedOf[body.ChatID]--
	}
	takes := c.takes()
	if c.hurry {
		takes = 0
	}
	seed := c.random.Uint64()
	c.mu.Unlock()
	work := func(cut <-chan struct{}) {
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.letGo:
		case <-cut:
		}
		c.mu.Lock()
		c.history.Turns[n].Ended = c.now()
		c.mu.Unlock()
	}
	if c.later != nil {
		go func() { // the test waits until no turn is open
			work(nil)
			c.later.answer(n, body.RunID, body.Reply, seed)
		}()
		w.WriteHeader(http.StatusAccepted)
		return
	}
	work(r.Context().Done())
	_, _ = io.WriteString(w, reply)
}

// settle lets turns take no time any more and callers end, waits until nothing is left to do, and puts down what the store says.
func (c *cluster) settle(cs *callers) {
	c.Helper()
	c.mu.Lock()
	c.hurry = true
	c.mu.Unlock()
	close(c.letGo)
	cs.finish()
	for _, node := range c.nodes {
		hookstest.Within(c.T, time.Minute, "nothing is left to do", func() bool {
			resp, err := c.get(node.Admin + "/hooks/overview")
			var overview struct {
				Figures struct{ Running, Queued, Waiting int }
			}
			return err == nil && resp.Status == 200 && json.Unmarshal([]byte(resp.Body), &overview) == nil &&
				strings.Contains(resp.Body, `"figures"`) && overview.Figures == struct{ Running, Queued, Waiting int }{}
		})
	}
	c.readStore()
}

// readStore puts down all ends of runs that the store has.
func (c *cluster) readStore() {
	c.Helper()
	var ids []string
	for cursor := ""; ; {
		resp, err := c.get(c.nodes[0].Admin + "/hooks/runs?limit=100" + cursor)
		var page struct {
			Runs   []struct{ RunID string }
			Cursor string
		}
		if err != nil || resp.Status != 200 || json.Unmarshal([]byte(resp.Body), &page) != nil {
			c.Fatalf("the list of runs is %d %s, %v", resp.Status, resp.Body, err)
		}
		for _, run := range page.Runs {
			ids = append(ids, run.RunID)
		}
		if page.Cursor == "" {
			break
		}
		cursor = "&cursor=" + page.Cursor
	}
	ends := make([]nodescheck.End, len(ids))
	var readers sync.WaitGroup
	for reader := range 8 {
		readers.Go(func() {
			for i := reader; i < len(ids); i += 8 {
				resp, err := c.get(c.nodes[i%len(c.nodes)].Admin + "/hooks/runs/" + ids[i])
				var run struct{ Status, Reply string }
				if err != nil || resp.Status != 200 || json.Unmarshal([]byte(resp.Body), &run) != nil {
					c.Errorf("run %s is shown as %d %s, %v", ids[i], resp.Status, resp.Body, err)
				}
				if run.Status != "queued" && run.Status != "running" {
					ends[i] = nodescheck.End{Run: ids[i], Status: run.Status, Reply: run.Reply}
				}
			}
		})
	}
	readers.Wait()
	for _, end := range ends {
		if end.Run != "" {
			c.history.Stored = append(c.history.Stored, end)
		}
	}
}

// wantNoFaults checks that all promises were kept.
func (c *cluster) wantNoFaults() {
	c.Helper()
	faults := nodescheck.Check(&c.history)
	for _, fault := range faults[:min(20, len(faults))] {
		c.Error(fault)
	}
	if len(faults) > 0 {
		for _, trouble := range c.history.Troubles {
			c.Logf("%+v", trouble)
		}
	}
	c.wantNoCrash()
}

// acknowledged is how many requests were acknowledged so far.
func (c *cluster) acknowledged() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.wasAcknowledged)
}

// waitForMore waits until so many more requests are acknowledged.
func (c *cluster) waitForMore(requests int) {
	c.Helper()
	enough := c.acknowledged() + requests
	hookstest.Within(c.T, time.Minute, "requests are acknowledged", func() bool { return c.acknowledged() >= enough })
}

// wantNoCrash checks that no node has logged a panic.
func (c *cluster) wantNoCrash() {
	c.Helper()
	for _, node := range c.nodes {
		node.process.WantNoCrash(c.T)
	}
}
