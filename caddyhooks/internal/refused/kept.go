package refused

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Kept is a request that became no run, as it was received but for its secrets.
type Kept struct {
	ID string    `json:"-"` // the name of its document
	At time.Time `json:"at"`
	Request
	Method  string      `json:"method"`
	Path    string      `json:"path"`
	Query   string      `json:"query,omitempty"`
	Headers http.Header `json:"headers,omitempty"`
	Body    []byte      `json:"body,omitempty"`   // its beginning
	Cut     bool        `json:"cut,omitempty"`    // there is more of it
	Unread  bool        `json:"unread,omitempty"` // its body was not read, or must not be kept

	Stranger bool `json:"stranger,omitempty"` // it had no good credential

	group string // of its client, while it is not saved
}

// The bounds of what is kept, over all nodes. Whoever has no credential cannot have more than a part of it, nor can one client.
const (
	MaxKept        = 200
	MaxKeptBytes   = 1 << 20
	MaxKeptBody    = 4 << 10
	MaxKeptFields  = 4 << 10 // headers and query of one request
	maxOfStrangers = MaxKept / 2
	maxOfClient    = MaxKept / 10

	maxPending         = 50 // of a node, until they are saved
	maxPendingOfClient = 5
)

// keeper has the requests that are not saved yet.
type keeper struct {
	keep    atomic.Int64 // for how long, 0 if none are kept
	pending []Kept       // the oldest first; under the lock of the recorder
}

// Keep sets how long requests are kept. Those that are older are removed, and with 0 all of them.
func (r *Recorder) Keep(d time.Duration) {
	if r == nil || r.kept.keep.Swap(int64(d)) == int64(d) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saver.changed()
}

// Keeps is how long requests are kept, 0 if they are not.
func (r *Recorder) Keeps() time.Duration {
	if r == nil {
		return 0
	}
	return time.Duration(r.kept.keep.Load())
}

// Wants reports whether a request of a client would be kept now. It is asked before a copy is made.
func (r *Recorder) Wants(client string) bool {
	if r.Keeps() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept.wants(client)
}

func (k *keeper) wants(client string) bool {
	if len(k.pending) >= maxPending {
		return false
	}
	group, n := clientGroup(client), 0
	for i := range k.pending {
		if k.pending[i].group == group {
			n++
		}
	}
	return n < maxPendingOfClient
}

// KeepRequest keeps a request.
func (r *Recorder) KeepRequest(request Kept) {
	request.ID, request.At = uuid.Must(uuid.NewV7()).String(), time.Now()
	request.group = clientGroup(request.Client)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept.wants(request.Client) && !r.closed {
		r.kept.pending = append(r.kept.pending, request)
		r.saver.changed()
	}
}

// clientGroup is the client, or its network: whoever has one address of IPv6 has a whole network of them.
func clientGroup(client string) string {
	address, err := netip.ParseAddr(client)
	if err != nil || !address.Is6() || address.Is4In6() {
		return client
	}
	network, _ := address.WithZone("").Prefix(64)
	return network.String()
}

// decodeKept reads a request that is kept. One that cannot be read is an old one, which is removed.
func decodeKept(value []byte) (k Kept) {
	_ = json.Unmarshal(value, &k)
	return k
}

func (s *saver) readRequests(ctx context.Context, store *Store) error {
	documents, err := store.Documents.Load(ctx, requestDocuments)
	if err != nil {
		return err
	}
	known := make(map[string]stored[Kept], len(documents))
	for _, document := range documents {
		value := decodeKept(document.Value)
		value.ID = document.Name
		known[document.Name] = stored[Kept]{document.Revision, value, len(document.Value)}
	}
	s.requests = collection[Kept]{known, time.Now()}
	return nil
}

// requestChanges are the documents to change: those of new requests, and those that are too old or too many.
func (s *saver) requestChanges(requests []Kept, now time.Time) (changes []engine.Document) {
	all := maps.Clone(s.requests.known)
	values := make(map[string][]byte, len(requests))
	for _, request := range requests {
		values[request.ID], _ = json.Marshal(request) // which always encodes
		all[request.ID] = stored[Kept]{value: request, size: len(values[request.ID])}
	}
	kept := boundedRequests(all, now.Add(-s.recorder.Keeps()))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		change := engine.Document{Kind: requestDocuments, Name: id, Revision: all[id].revision}
		switch isNew := change.Revision == 0; {
		case !kept[id] && !isNew:
			changes = append(changes, change)
		case kept[id] && isNew:
			change.Value = values[id]
			changes = append(changes, change)
		}
	}
	return changes
}

// boundedRequests are the ids of the requests that stay: the newest ones since a time, within the bounds.
func boundedRequests(all map[string]stored[Kept], since time.Time) map[string]bool {
	kept := make(map[string]bool)
	clients, strangers, bytes := make(map[string]int), 0, 0
	for _, id := range latestRequests(all) {
		request, client := all[id].value, clientGroup(all[id].value.Client)
		if request.At.Before(since) || len(kept) == MaxKept || clients[client] == maxOfClient || bytes+all[id].size > MaxKeptBytes ||
			request.Stranger && (strangers == maxOfStrangers) {
			continue
		}
		kept[id] = true
		bytes += all[id].size
		clients[client]++
		if request.Stranger {
			strangers++
		}
	}
	return kept
}

// latestRequests are ids, the latest request first.
func latestRequests(all map[string]stored[Kept]) []string {
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if order := all[b].value.At.Compare(all[a].value.At); order != 0 {
			return order
		}
		return strings.Compare(b, a)
	})
}

// Requests returns the requests that are kept, the latest first: those in the store, and those that this node has not saved yet.
func (r *Recorder) Requests(ctx context.Context, match func(*Kept) bool, limit int) (found []Kept) {
	if r == nil {
		return nil
	}
	s := &r.saver
	s.io.Lock()
	defer s.io.Unlock()
	s.refresh(ctx, true)
	all := maps.Clone(s.requests.known)
	if all == nil {
		all = make(map[string]stored[Kept])
	}
	r.mu.Lock()
	for _, request := range r.kept.pending {
		all[request.ID] = stored[Kept]{value: request}
	}
	r.mu.Unlock()
	kept := boundedRequests(all, time.Now().Add(-r.Keeps()))
	for _, id := range latestRequests(all) {
		if request := all[id].value; kept[id] && len(found) < limit && match(&request) {
			found = append(found, request)
		}
	}
	return found
}

// Shown is the request in the JSON of the admin API.
func (k *Kept) Shown() api.RefusedRequestDetails {
	headers := k.Headers
	if headers == nil {
		headers = http.Header{}
	}
	return api.RefusedRequestDetails{
		RefusedRequest: api.RefusedRequest{
			ID: k.ID, At: text.JSONTime(k.At), Hook: k.Hook, Status: k.Status, Ignored: k.Ignored, Reason: k.Reason, Message: k.Message,
			Method: k.Method, Path: k.Path, Client: k.Client, Size: k.Size, ContentType: headers.Get("Content-Type"),
		},
		Headers: headers, Query: k.Query, Payload: strings.ToValidUTF8(string(k.Body), "\uFFFD"), Cut: k.Cut, Unread: k.Unread,
	}
}
