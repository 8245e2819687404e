package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/nodescheck"
)

// callers send requests to all nodes of a cluster, until they are told to stop.
type callers struct {
	*cluster
	ctx    context.Context // is done when they are to stop
	stop   context.CancelFunc
	all    sync.WaitGroup
	texts  atomic.Int64
	token  atomic.Int64 // the version that is known to be in force
	newest atomic.Int64 // the version that was asked for last
}

const (
	chatsOfCallers = 6
	callersOfAChat = 2 // who do not wait for the end of a run
	openInAChat    = 5 // runs that were not started
)

// startCallers starts callers of several chats, some of whom wait for answers, and somebody who changes the token.
func (c *cluster) startCallers(seed uint64) *callers {
	cs := &callers{cluster: c}
	cs.ctx, cs.stop = context.WithCancel(context.Background())
	c.Cleanup(cs.stop)
	for chat := range chatsOfCallers {
		for i := range callersOfAChat + 1 {
			random := rand.New(rand.NewPCG(seed, uint64(100+chat*10+i)))
			one := &caller{callers: cs, random: random, chat: fmt.Sprint("chat-", chat), waits: i == callersOfAChat}
			one.client = clientFrom(fmt.Sprint(front, 100+chat*10+i))
			cs.all.Go(one.call)
		}
	}
	random := rand.New(rand.NewPCG(seed, 99))
	cs.all.Go(func() { cs.changeTokens(random) })
	return cs
}

// finish has the callers end what they are at.
func (cs *callers) finish() {
	cs.stop()
	cs.all.Wait()
}

// clientFrom is a client with an address of its own: failed credentials are counted by address.
func clientFrom(address string) *http.Client {
	dialer := &net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Timeout: 2 * shortPatience, Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
}

func tokenOf(version int64) string { return fmt.Sprintf("token-of-version-%d", version) }

var markedText = regexp.MustCompile(`text-\d+`)

// requestIn is the text of a request, in what the runner is told.
func requestIn(message string) string { return markedText.FindString(message) }

// caller sends one request after the other in a chat.
type caller struct {
	*callers
	client *http.Client
	random *rand.Rand
	chat   string
	waits  bool // for the end of each run
}

func (c *caller) call() {
	for c.ctx.Err() == nil {
		if !c.waits && c.unstarted() > openInAChat {
			c.pause(20 * time.Millisecond)
			continue
		}
		text, key := fmt.Sprint("text-", c.texts.Add(1)), ""
		if c.random.IntN(2) == 0 {
			key = "key-of-" + text
		}
		for tries := 0; tries < 20; tries++ {
			r := c.send(c.nodes[c.random.IntN(len(c.nodes))], text, key, int(c.token.Load()))
			if r.Run != "" || r.Status == 400 || key == "" || tries > 2 && c.ctx.Err() != nil {
				break
			}
			c.pause(200 * time.Millisecond)
		}
		c.pause(50 * time.Millisecond)
	}
}

// pause waits for some time up to the longest.
func (c *caller) pause(longest time.Duration) {
	select {
	case <-time.After(time.Duration(c.random.Int64N(int64(longest)))):
	case <-c.ctx.Done():
	}
}

// unstarted is how many acknowledged runs of the chat were not started yet.
func (c *caller) unstarted() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unstartedOf[c.chat]
}

// send sends a request, and puts it down with its answer.
func (c *caller) send(node *clusterNode, text, key string, version int) nodescheck.Request {
	r := nodescheck.Request{Text: text, Chat: c.chat, Node: node.name, Key: key, Token: version}
	body := fmt.Sprintf(`{"message":"%s","chatId":"%s","syncResponse":%v,"timeoutSeconds":60}`, text, c.chat, c.waits)
	request, err := http.NewRequest("POST", node.URL+"/api/hooks/agent", strings.NewReader(body))
	if err != nil {
		c.Error(err)
		return r
	}
	request.Header.Set("Authorization", "Bearer "+tokenOf(int64(version)))
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	r.Sent = c.now()
	answer, err := c.client.Do(request)
	if err == nil {
		var content []byte
		content, err = io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err == nil {
			r.Status = answer.StatusCode
			switch r.Status {
			case http.StatusOK:
				r.Run, r.Reply = answer.Header.Get("X-Service-Run-Id"), string(content)
			case http.StatusAccepted:
				var accepted struct{ RunID string }
				if err := json.Unmarshal(content, &accepted); err != nil || accepted.RunID == "" {
					c.Errorf("accepted with %s", content)
				}
				r.Run = accepted.RunID
			case http.StatusBadRequest:
				c.Errorf("a request was answered %d %s", r.Status, content)
			}
		}
		r.Answered = c.now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.Requests = append(c.history.Requests, r)
	if r.Run != "" && !c.wasAcknowledged[r.Run] {
		c.wasAcknowledged[r.Run] = true
		c.unstartedOf[c.chat]++
	}
	return r
}

// changeTokens changes the token now and then, through the admin API of some node, and tries the token before it.
func (cs *callers) changeTokens(random *rand.Rand) {
	one := &caller{callers: cs, random: random, chat: "of-tokens", client: clientFrom(front + "99")}
	for cs.ctx.Err() == nil {
		one.pause(3 * time.Second)
		if !cs.changeToken(cs.nodes[random.IntN(len(cs.nodes))]) {
			continue
		}
		for range 2 {
			one.send(cs.nodes[random.IntN(len(cs.nodes))], fmt.Sprint("text-", cs.texts.Add(1)), "", int(cs.token.Load()-1))
		}
		one.send(cs.nodes[random.IntN(len(cs.nodes))], fmt.Sprint("text-", cs.texts.Add(1)), "", int(cs.token.Load()))
	}
}

// changeToken asks a node for the next version of the token, and reports whether it is known to be in force. A change that reaches its
// node late is made only if there was no other one meanwhile.
func (cs *callers) changeToken(node *clusterNode) bool {
	shown, err := cs.get(node.Admin + "/hooks/settings")
	if err != nil || shown.Status != 200 {
		return false
	}
	version := cs.newest.Add(1)
	request, err := http.NewRequest("PATCH", node.Admin+"/hooks/settings", strings.NewReader(`{"token":"`+tokenOf(version)+`"}`))
	if err != nil {
		cs.Error(err)
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("If-Match", shown.Header.Get("ETag"))
	change := nodescheck.TokenChange{Version: int(version), Sent: cs.now()}
	cs.mu.Lock()
	at := len(cs.history.Changes)
	cs.history.Changes = append(cs.history.Changes, change)
	cs.mu.Unlock()
	answer, err := impatient.Do(request)
	if err != nil {
		return false
	}
	content, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusPreconditionFailed, http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusConflict:
		return false
	default:
		cs.Errorf("a change of the token is answered %d %s", answer.StatusCode, content)
		return false
	}
	cs.mu.Lock()
	cs.history.Changes[at].Answered = cs.now()
	cs.mu.Unlock()
	cs.token.Store(version)
	return true
}
