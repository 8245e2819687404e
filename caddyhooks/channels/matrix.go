package channels

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

func init() {
	caddy.RegisterModule(Matrix{})
}

// Matrix is a channel that sends answers as notices to rooms, with the access token of a user of a homeserver, whose url it
// has. A chat is the id or an alias of a room that the user has joined, and <room>/<event id> is a thread in it. Rooms that are
// encrypted are not for it.
//
// A homeserver knows a repeat, so that a message is in a room once.
type Matrix struct {
	API

	aliases *aliases
}

// CaddyModule returns the Caddy module information.
func (Matrix) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.channels.matrix",
		New: func() caddy.Module { return new(Matrix) },
	}
}

// Provision sets up the channel.
func (m *Matrix) Provision(caddy.Context) error {
	if m.Token == "" {
		return errors.New("channel matrix needs an access token")
	}
	m.splitTo = splitAtSlash
	m.aliases = &aliases{rooms: make(map[string]resolvedAlias)}
	return m.provision("matrix", "", checkBaseURL, m.ValidTo)
}

// UnmarshalCaddyfile parses:
//
//	channel <name> matrix <url> <token> {
//		timeout  <duration>
//		allow_to <to>...
//	}
func (m *Matrix) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return m.unmarshalOnServer(d, "matrix", "the URL of a homeserver and one secret, an access token", m.ValidTo)
}

var matrixServer = regexp.MustCompile(`^(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[:.]*[0-9A-Fa-f][0-9A-Fa-f:.]*\])(?::[0-9]{1,5})?$`)

// ValidTo takes ids and aliases of rooms, and threads in them.
func (*Matrix) ValidTo(to string) error {
	room, thread, hasThread := strings.Cut(to, "/")
	if !isRoomID(room) && !isRoomAlias(room) || hasThread && !isMatrixEvent(thread) {
		return errors.New("a chat on Matrix is the id of a room, such as !abc:example.org, or an alias, such as #room:example.org; " +
			"a thread follows after a slash, as in !abc:example.org/$event")
	}
	return nil
}

var matrixEvent = regexp.MustCompile(`^\$[A-Za-z0-9._~=+/-]{1,200}$`)

func isMatrixEvent(id string) bool {
	local, server, hasServer := strings.Cut(id, ":")
	return len(id) <= 255 && matrixEvent.MatchString(local) && (!hasServer || matrixServer.MatchString(server))
}

// matrixMessageID matches the ids of events that can stand in a path: those of old rooms may not.
var matrixMessageID = regexp.MustCompile(`^\$[A-Za-z0-9._~=+-]{1,200}(?::[A-Za-z0-9][A-Za-z0-9.-]{0,200})?$`)

func isRoomID(id string) bool {
	local, ok := strings.CutPrefix(id, "!")
	local, server, hasServer := strings.Cut(local, ":")
	return ok && fitsMatrix(id, local) && (!hasServer || matrixServer.MatchString(server))
}

func isRoomAlias(alias string) bool {
	local, ok := strings.CutPrefix(alias, "#")
	local, server, hasServer := strings.Cut(local, ":")
	return ok && fitsMatrix(alias, local) && hasServer && matrixServer.MatchString(server)
}

// fitsMatrix leaves out some ids that Matrix allows and hardly anybody has. They become a part of a path, and a proxy before
// the server may take for its steps what is escaped there. The local part is what stands before the server.
func fitsMatrix(id, local string) bool {
	return len(id) <= 255 && utf8.ValidString(id) && strings.Trim(local, ".") != "" && !strings.ContainsFunc(id, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(`/\?%`, r)
	})
}

// matrixMessage is the content of an m.room.message. The mentions are there to say that there are none: without them,
// servers look for names and for @room in the text. So is the type: nobody is notified of a notice.
type matrixMessage struct {
	Type     string          `json:"msgtype"`
	Body     string          `json:"body"`
	Mentions struct{}        `json:"m.mentions"`
	New      *matrixMessage  `json:"m.new_content,omitempty"`
	Relation *matrixRelation `json:"m.relates_to,omitempty"`
}

// matrixRelation makes a message a part of a thread, or the new version of another message. To clients that know no threads it is a reply.
type matrixRelation struct {
	Type        string       `json:"rel_type"`
	Event       string       `json:"event_id"`
	FallingBack bool         `json:"is_falling_back,omitempty"`
	InReplyTo   *matrixReply `json:"m.in_reply_to,omitempty"`
}

type matrixReply struct {
	Event string `json:"event_id"`
}

// newMatrixMessage is a message in a thread, or in none if that is "".
func newMatrixMessage(part, thread string) matrixMessage {
	message := matrixMessage{Type: "m.notice", Body: part}
	if thread != "" {
		message.Relation = &matrixRelation{Type: "m.thread", Event: thread, FallingBack: true, InReplyTo: &matrixReply{thread}}
	}
	return message
}

// newMatrixEdit replaces a message. Clients that know no edits show the beginning of the new text: an event has no place for it twice.
func newMatrixEdit(part, event string) matrixMessage {
	fallback := []rune("* " + part)
	if len(fallback) > maxEditFallback {
		fallback = append(fallback[:maxEditFallback-1], '…')
	}
	message := newMatrixMessage(part, "")
	return matrixMessage{Type: message.Type, Body: string(fallback), New: &message, Relation: &matrixRelation{Type: "m.replace", Event: event}}
}

const maxEditFallback = 1000

// An event may have 64 KiB of JSON, which includes members that servers add.
var matrixSplitter = splitter{limit: 32 << 10, size: jsonLength}

// jsonLength is how many bytes a text has as a string in JSON, if nothing is escaped that need not be.
func jsonLength(text string) int {
	return len(text) + strings.Count(text, `"`) + strings.Count(text, `\`) + strings.Count(text, "\n") + strings.Count(text, "\t")
}

// Send sends the answer, in as many messages as it takes.
func (m *Matrix) Send(ctx context.Context, d *engine.Delivery) error {
	return sendEdited(ctx, m, d, matrixSplitter, matrixMessageID)
}

// Begin sends a message.
func (m *Matrix) Begin(ctx context.Context, to, text string) (progress string, err error) {
	return beginEdited(ctx, m, to, text, matrixSplitter, matrixMessageID)
}

// Withdraw redacts a message.
func (m *Matrix) Withdraw(ctx context.Context, to, progress string) error {
	return withdrawEdited(ctx, m, to, progress, matrixMessageID)
}

func (m *Matrix) post(ctx context.Context, d *engine.Delivery, part string) (id string, err error) {
	_, thread := splitAtSlash(d.To)
	return m.put(ctx, d, "send/m.room.message", "", newMatrixMessage(part, thread))
}

func (m *Matrix) edit(ctx context.Context, d *engine.Delivery, id, part string) error {
	if err := m.find(ctx, d, id); err != nil {
		return err
	}
	_, err := m.put(ctx, d, "send/m.room.message", ".edit", newMatrixEdit(part, id))
	return err
}

func (m *Matrix) remove(ctx context.Context, d *engine.Delivery, id string) error {
	_, err := m.put(ctx, d, "redact/"+url.PathEscape(id), "", struct{}{})
	return err
}

// find looks for a message. Servers let one be edited that has been redacted, and nobody sees the edit.
func (m *Matrix) find(ctx context.Context, d *engine.Delivery, id string) error {
	room, err := m.room(ctx, d)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/_matrix/client/v3/rooms/%s/event/%s", url.PathEscape(room), url.PathEscape(id))
	req, err := m.authorized(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return m.call(d, req, func(o *outbound.Outcome, answer map[string]any) {
		content, ok := answer["content"].(map[string]any)
		_, hasBody := content["body"]
		switch {
		case o.Delivered && !ok:
			markUnexpected(o, "a Matrix server")
		case o.Delivered && !hasBody:
			o.Delivered, o.Final, o.Reason = false, true, "the message has been redacted"
		default:
			judgeMatrix(o, answer, "there is no such message")
		}
	})
}

// put sends an event to the room of a delivery, and returns its id. A server carries out requests of one name once: the name is that of
// the part that is sent, and the suffix.
func (m *Matrix) put(ctx context.Context, d *engine.Delivery, what, suffix string, content any) (id string, err error) {
	room, err := m.room(ctx, d)
	if err != nil {
		return "", err
	}
	name := rand.Text()
	if d.ID != "" { // else it is not sent again
		name = fmt.Sprintf("%s.%d%s", d.ID, d.Sent, suffix)
	}
	path := fmt.Sprintf("/_matrix/client/v3/rooms/%s/%s/%s", url.PathEscape(room), what, url.PathEscape(name))
	req, err := m.authorized(ctx, http.MethodPut, path, encodeJSON(content))
	if err != nil {
		return "", err
	}
	err = m.call(d, req, func(o *outbound.Outcome, answer map[string]any) {
		if id, _ = answer["event_id"].(string); o.Delivered && id == "" {
			markUnexpected(o, "a Matrix server")
			return
		}
		judgeMatrix(o, answer, "there is no such room, or the user of this channel has not joined it")
	})
	if _, final := errors.AsType[*engine.FinalError](err); final {
		alias, _ := splitAtSlash(d.To)
		m.aliases.forget(alias) // it may be that of another room by now
	}
	return id, err
}

func (m *Matrix) authorized(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	req, err := m.request(ctx, method, path, body)
	if err == nil {
		req.Header.Set("Authorization", "Bearer "+m.token)
	}
	return req, err
}

// room is the id of the room that a delivery is for.
func (m *Matrix) room(ctx context.Context, d *engine.Delivery) (string, error) {
	alias, _ := splitAtSlash(d.To)
	if isRoomID(alias) {
		return alias, nil
	}
	if room, ok := m.aliases.room(alias); ok {
		return room, nil
	}
	req, err := m.authorized(ctx, http.MethodGet, "/_matrix/client/v3/directory/room/"+url.PathEscape(alias), nil)
	if err != nil {
		return "", err
	}
	var room string
	err = m.call(d, req, func(o *outbound.Outcome, answer map[string]any) {
		if room, _ = answer["room_id"].(string); o.Delivered && !isRoomID(room) {
			markUnexpected(o, "a Matrix server")
			return
		}
		judgeMatrix(o, answer, "no room has this alias")
	})
	if err != nil {
		return "", err
	}
	m.aliases.remember(alias, room)
	return room, nil
}

// aliases remembers for a while which room an alias stands for.
type aliases struct {
	mu    sync.Mutex
	rooms map[string]resolvedAlias
}

type resolvedAlias struct {
	room  string
	until time.Time
}

const (
	aliasTime  = 10 * time.Minute
	maxAliases = 1000 // callers of hooks choose them
)

func (a *aliases) room(alias string) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.rooms[alias]
	return known.room, time.Now().Before(known.until)
}

func (a *aliases) remember(alias, room string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.rooms) >= maxAliases {
		clear(a.rooms)
	}
	a.rooms[alias] = resolvedAlias{room, time.Now().Add(aliasTime)}
}

func (a *aliases) forget(alias string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.rooms, alias)
}

var matrixError = regexp.MustCompile(`^[A-Z][A-Z0-9_]{1,63}$`)

// judgeMatrix reads {"errcode": …, "retry_after_ms": …}.
func judgeMatrix(o *outbound.Outcome, answer map[string]any, notFound string) {
	if o.Delivered {
		return
	}
	code, _ := answer["errcode"].(string)
	if !matrixError.MatchString(code) {
		o.Reason = answerReason("the Matrix server", o.Status, explainStatus(o.Status))
		return
	}
	why := matrixReasons[code]
	switch code {
	case "M_NOT_FOUND":
		why = notFound
	case "M_UNKNOWN":
		why = explainRelation(answer)
	case "M_LIMIT_EXCEEDED":
		o.Final = false
		o.RetryAfter = max(o.RetryAfter, readPause(answer["retry_after_ms"], time.Millisecond))
		o.WholeChannel = true // servers count by user, not by room
	}
	o.Reason = answerReason("the Matrix server", code, why)
}

// explainRelation explains why a server does not let a message be in a thread. There is no code for it.
func explainRelation(answer map[string]any) string {
	text, _ := answer["error"].(string)
	switch text = strings.ToLower(text); {
	case strings.Contains(text, "unknown event"), strings.Contains(text, "same room"):
		return "there is no such thread in the room"
	case strings.Contains(text, "cannot start threads"):
		return "no thread can begin at this message"
	}
	return ""
}

// matrixReasons explains error codes to an operator.
var matrixReasons = map[string]string{
	"M_FORBIDDEN":        "the user of this channel has not joined the room, or may not write in it",
	"M_UNKNOWN_TOKEN":    "it does not know the token of this channel",
	"M_MISSING_TOKEN":    "it does not know the token of this channel",
	"M_USER_DEACTIVATED": "the user of this channel is deactivated",
	"M_USER_LOCKED":      "the user of this channel is locked",
	"M_USER_SUSPENDED":   "the user of this channel is suspended",
	"M_TOO_LARGE":        "the message is too long for it",
	"M_LIMIT_EXCEEDED":   "it asks for a pause",
}

// Interface guards
var (
	_ engine.Channel         = (*Matrix)(nil)
	_ engine.ProgressChannel = (*Matrix)(nil)
	_ caddy.Provisioner      = (*Matrix)(nil)
	_ caddy.CleanerUpper     = (*Matrix)(nil)
	_ caddyfile.Unmarshaler  = (*Matrix)(nil)
)
