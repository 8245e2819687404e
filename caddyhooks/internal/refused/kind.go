package refused

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Kind tells requests apart that are refused. Callers must not be able to make many of them: each part is configured, or one of a few.
type Kind struct {
	Hook   string `json:"hook,omitempty"` // "" for all names that no hook has
	Status int    `json:"status"`
	Reason string `json:"reason"` // for operators; of an ignored request its condition

	Ignored bool `json:"ignored,omitempty"` // it was not refused: the hook leaves such requests out
}

// name is that of the kind's document.
func (k Kind) name() string {
	encoded, _ := json.Marshal(k) // which always encodes
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:16])
}

// Request is a request that became no run.
type Request struct {
	Kind
	Message   string `json:"message,omitempty"` // the answer to the caller
	Cause     string `json:"cause,omitempty"`   // what went wrong inside, if anything
	Chat      string `json:"chat,omitempty"`    // whose queue is full, if that is why
	Asked     string `json:"asked,omitempty"`   // the name in the URL, if no hook has it, or the run
	Client    string `json:"client,omitempty"`
	RequestID string `json:"requestId,omitempty"` // that the sender gave, if it was known by then
	Size      int64  `json:"size,omitempty"`
}

// Requests are requests of a kind.
type Requests struct {
	Last    Request        `json:"last"`
	FirstAt time.Time      `json:"firstAt"`
	LastAt  time.Time      `json:"lastAt"`
	Count   int64          `json:"count"`
	Lately  recentCount    `json:"lately"`
	Clients []RecentClient `json:"clients,omitempty"` // the last ones, the latest first
	Asked   []string       `json:"asked,omitempty"`   // the last names, the latest first
}

// RecentClient is one of the last clients whose requests of a kind were refused.
type RecentClient struct {
	Address string    `json:"address"`
	Count   int64     `json:"count"` // since it is among the last ones
	LastAt  time.Time `json:"lastAt"`
}

const (
	// MaxKinds bounds the kinds that are kept, and the kinds that are logged at once in a minute.
	MaxKinds = 500

	// MaxMessage bounds the part of an answer that is kept. It may quote the caller.
	MaxMessage = 512

	// MaxCause bounds the part of an error that is kept.
	MaxCause = 512

	// maxRecent bounds the clients and the names that are kept of a kind.
	maxRecent = 8
)

// add counts one more request of the kind.
func (k *Requests) add(request Request, now time.Time) {
	if k.Count == 0 {
		k.FirstAt = now
	}
	k.Last, k.LastAt = request, now
	k.Count++
	k.Lately.add(now)
	client := RecentClient{Address: request.Client}
	at := slices.IndexFunc(k.Clients, func(c RecentClient) bool { return c.Address == client.Address })
	if at >= 0 {
		client = k.Clients[at]
	}
	client.Count++
	client.LastAt = now
	k.Clients = toFront(k.Clients, at, client)
	if request.Asked != "" {
		k.Asked = toFront(k.Asked, slices.Index(k.Asked, request.Asked), request.Asked)
	}
}

// toFront puts an item at the front of a short list. at is where the list has it already, negative if it has not.
func toFront[T any](items []T, at int, item T) []T {
	if at < 0 {
		if len(items) < maxRecent {
			items = append(items, item)
		}
		at = len(items) - 1 // the last one of a full list goes
	}
	copy(items[1:], items[:at])
	items[0] = item
	return items
}

// plus are the requests of both, of one kind, whichever came first. It shares nothing with them that changes.
func (k *Requests) plus(others *Requests) Requests {
	older, sum := k, *others
	if k.LastAt.After(others.LastAt) {
		older, sum = others, *k
	}
	sum.Clients, sum.Asked = slices.Clone(sum.Clients), slices.Clone(sum.Asked)
	if older.Count == 0 {
		return sum
	}
	if sum.Count == 0 || older.FirstAt.Before(sum.FirstAt) {
		sum.FirstAt = older.FirstAt
	}
	sum.Count += older.Count
	sum.Lately = sum.Lately.plus(older.Lately)
	for _, client := range older.Clients {
		at := slices.IndexFunc(sum.Clients, func(c RecentClient) bool { return c.Address == client.Address })
		if at < 0 {
			sum.Clients = append(sum.Clients, client)
			continue
		}
		known := &sum.Clients[at]
		known.Count += client.Count
		if client.LastAt.After(known.LastAt) {
			known.LastAt = client.LastAt
		}
	}
	slices.SortStableFunc(sum.Clients, func(a, b RecentClient) int { return b.LastAt.Compare(a.LastAt) })
	for _, name := range older.Asked {
		if !slices.Contains(sum.Asked, name) {
			sum.Asked = append(sum.Asked, name)
		}
	}
	sum.Clients, sum.Asked = sum.Clients[:min(len(sum.Clients), maxRecent)], sum.Asked[:min(len(sum.Asked), maxRecent)]
	return sum
}

// recentCount counts what happened in the last hour, or a little less.
type recentCount struct {
	Began  time.Time `json:"began"` // the half hour that is counted now
	Now    int64     `json:"now"`
	Before int64     `json:"before,omitempty"` // in the half hour before it
}

const halfAnHour = 30 * time.Minute

func (c *recentCount) add(now time.Time) {
	c.turn(now)
	c.Now++
}

// At is the count at a time.
func (c recentCount) At(now time.Time) int64 {
	c.turn(now)
	return c.Now + c.Before
}

// plus is the count of both. They may be of different nodes.
func (c recentCount) plus(other recentCount) recentCount {
	if c.Began.Before(other.Began) {
		c, other = other, c
	}
	other.turn(c.Began)
	return recentCount{Began: c.Began, Now: c.Now + other.Now, Before: c.Before + other.Before}
}

// turn begins another half hour if it is time. All nodes begin it at the same time.
func (c *recentCount) turn(now time.Time) {
	switch passed := now.Sub(c.Began); {
	case passed >= 2*halfAnHour:
		*c = recentCount{Began: now.UTC().Truncate(halfAnHour)}
	case passed >= halfAnHour:
		*c = recentCount{Began: c.Began.Add(halfAnHour), Before: c.Now}
	}
}

// maxStoredReason bounds the reason in a document: a condition can be long.
const maxStoredReason = 4 << 10

// encode is the value of the kind's document.
func (k *Requests) encode() []byte {
	stored := *k
	stored.Last.Reason = text.Beginning(stored.Last.Reason, maxStoredReason)
	encoded, _ := json.Marshal(stored) // which always encodes
	return encoded
}

// decode reads the value of a document. It reports false if that is none of ours, or of another version.
func decode(value []byte) (k Requests, ok bool) {
	err := json.Unmarshal(value, &k)
	return k, err == nil && k.Count > 0 && !k.LastAt.IsZero()
}

// latestFirst puts kinds in the order of lists.
func latestFirst(a, b Requests) int {
	return cmp.Or(b.LastAt.Compare(a.LastAt), strings.Compare(a.Last.Hook, b.Last.Hook), strings.Compare(a.Last.Reason, b.Last.Reason))
}

// Shown is the kind in the JSON of the admin API.
func (k *Requests) Shown() api.Refused {
	shown := api.Refused{
		Hook: k.Last.Hook, Status: k.Last.Status, Ignored: k.Last.Ignored, Reason: k.Last.Reason, Message: k.Last.Message, Error: k.Last.Cause,
		Chat: k.Last.Chat, RequestID: k.Last.RequestID,
		Count: k.Count, FirstAt: text.JSONTime(k.FirstAt), LastAt: text.JSONTime(k.LastAt), Client: k.Last.Client, Size: k.Last.Size,
		Asked: k.Asked,
		Clients: api.ShowAll(k.Clients, func(c RecentClient) api.RefusedClient {
			return api.RefusedClient{Client: c.Address, Count: c.Count, LastAt: text.JSONTime(c.LastAt)}
		}),
	}
	if shown.Ignored {
		shown.Condition = shown.Reason
	}
	return shown
}
