package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
)

// knownAgent is an agent as its card describes it.
type knownAgent struct {
	client  *a2aclient.Client
	streams bool
	pushes  bool // it can say by itself that there is news of a task
}

// agentCards keeps the agent for a while. A card that was read is good for the turns that follow.
type agentCards struct {
	read    func(context.Context) (*knownAgent, error)
	reading chan struct{} // full while a caller reads the card

	mu    sync.Mutex
	agent *knownAgent // nil: the card is to be read
	until time.Time
}

const (
	// cardLife is how long a card is good. Agents change theirs with a new version of themselves.
	cardLife = 10 * time.Minute

	// cardTimeout is how long it may take to read a card.
	cardTimeout = 10 * time.Second

	// maxCard bounds a card. Those of agents with many skills have some 10 KB.
	maxCard = 1 << 20
)

func newAgentCards(read func(context.Context) (*knownAgent, error)) *agentCards {
	return &agentCards{read: read, reading: make(chan struct{}, 1)}
}

// get returns the agent. One caller reads the card, and others wait for that.
func (c *agentCards) get(ctx context.Context) (*knownAgent, error) {
	if agent := c.known(); agent != nil {
		return agent, nil
	}
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-ctx.Done():
		return nil, &engine.UnavailableError{Err: fmt.Errorf("waiting for the agent card: %w", ctx.Err())}
	}
	if agent := c.known(); agent != nil {
		return agent, nil
	}
	agent, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.agent, c.until = agent, time.Now().Add(cardLife)
	return agent, nil
}

// known is the agent by a card that is still good, or nil.
func (c *agentCards) known() *knownAgent {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().After(c.until) {
		return nil
	}
	return c.agent
}

// forget lets the card be read anew, after a turn that failed.
func (c *agentCards) forget(agent *knownAgent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.agent == agent {
		c.agent = nil
	}
}

// cardURL is the URL of the card of an agent, and the user in it.
func cardURL(address string) (string, *url.Userinfo) {
	u, err := url.Parse(address)
	if err != nil {
		return "", nil
	}
	if path.Ext(u.Path) != ".json" {
		u = u.JoinPath("/.well-known/agent-card.json")
	}
	user := u.User
	u.User = nil
	return u.String(), user
}

// agentCard is what counts of a card.
type agentCard struct {
	Capabilities struct {
		Streaming bool `json:"streaming"`
		Pushes    bool `json:"pushNotifications"`
	} `json:"capabilities"`
	Interfaces []*a2a.AgentInterface `json:"supportedInterfaces"`

	OldVersion string `json:"protocolVersion"` // stood here before version 1.0
	OldURL     string `json:"url"`
}

// readCard reads the card, and chooses how the agent is spoken to.
func (a *A2A) readCard(ctx context.Context) (*knownAgent, error) {
	ctx, end := context.WithTimeout(ctx, cardTimeout)
	defer end()
	call := newAgentCall(nil, nil)
	call.limit = maxCard
	req, err := http.NewRequestWithContext(call.with(ctx), http.MethodGet, a.card, nil)
	if err != nil {
		return nil, errors.New("the URL of the agent card cannot be requested")
	}
	req.Header.Set("Accept", "application/json")
	resp, err := a.HTTPClient().Do(req)
	if err != nil {
		return nil, call.problem(err)
	}
	defer resp.Body.Close()
	if call.err != nil {
		return nil, inCard(call.err)
	}
	data, err := httpcall.ReadBounded(resp.Body, resp.ContentLength, maxCard)
	if err != nil {
		return nil, &engine.UnavailableError{Err: fmt.Errorf("reading the agent card: %w", err)}
	}
	card, err := parseCard(data)
	if err != nil {
		return nil, err
	}
	return a.choose(ctx, card)
}

// inCard says that an answer was that to the request for the card.
func inCard(err error) error {
	var answer *answers.Error
	if errors.As(err, &answer) {
		answer.Problem = "reading the agent card: " + answer.Problem
	}
	return err
}

func parseCard(data []byte) (*agentCard, error) {
	card := new(agentCard)
	if err := json.Unmarshal(data, card); err != nil {
		return nil, &answers.Error{Problem: "the agent card is not the JSON of one", Text: answers.Beginning(data)}
	}
	if len(card.Interfaces) == 0 && card.OldURL != "" {
		return nil, fmt.Errorf("the agent card is one of A2A %.10q; the runner speaks A2A %s", card.OldVersion, a2a.Version)
	}
	return card, nil
}

// choose takes the first interface of the card that the runner can use and may call.
func (a *A2A) choose(ctx context.Context, card *agentCard) (*knownAgent, error) {
	var usable []*a2a.AgentInterface
	var elsewhere, others []string
	for _, way := range card.Interfaces {
		switch {
		case way == nil:
		case way.ProtocolBinding != a2a.TransportProtocolJSONRPC && way.ProtocolBinding != a2a.TransportProtocolHTTPJSON,
			!strings.HasPrefix(string(way.ProtocolVersion)+".", "1."):
			others = append(others, fmt.Sprintf("%.20s %.10s", way.ProtocolBinding, way.ProtocolVersion))
		case !slices.Contains(a.origins, httpcall.OriginOf(way.URL)):
			elsewhere = append(elsewhere, httpcall.OriginOf(way.URL))
		default:
			usable = append(usable, way)
		}
	}
	switch {
	case len(usable) > 0:
	case len(elsewhere) > 0:
		return nil, &answers.Error{
			Problem: fmt.Sprintf("the agent card of %s points to another place", a.origins[0]), Text: elsewhere[0],
			Hint: "nothing is sent there unless the line allow_to names it",
		}
	default:
		const problem = "the agent card has no interface of A2A 1.0 over JSONRPC or HTTP+JSON"
		return nil, &answers.Error{Problem: problem, Text: strings.Join(others, ", ")}
	}
	client, err := a2aclient.NewFactory(a2aclient.WithDefaultsDisabled(),
		a2aclient.WithJSONRPCTransport(a.HTTPClient()), a2aclient.WithRESTTransport(a.HTTPClient())).CreateFromEndpoints(ctx, usable)
	if err != nil {
		return nil, &answers.Error{Problem: "the agent card cannot be used", Text: err.Error()}
	}
	return &knownAgent{client, card.Capabilities.Streaming, card.Capabilities.Pushes}, nil
}
