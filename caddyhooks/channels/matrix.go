package channels

import (
	"context"
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
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

func init() {
	caddy.RegisterModule(Matrix{})
}

// Matrix is a channel that sends answers as notices to rooms, with the access token of a user of a homeserver, whose url it
// has. A chat is the id or an alias of a room that the user has joined. Rooms that are encrypted are not for it.
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
	d.Next()
	args, err := caddyconf.List(d)
	if err != nil || len(args) != 2 || strings.TrimSpace(args[1]) == "" {
		return d.Err("channel matrix takes the URL of a homeserver and one secret, an access token, which must not be blank" + caddyconf.Unset)
	}
	m.URL, m.Token = args[0], args[1]
	if err := checkBaseURL(m.URL); err != nil && !caddyconf.HasPlaceholder(m.URL) {
		return d.WrapErr(err)
	}
	return caddyconf.ReadBlock(d, "channel matrix", timeoutDirective(&m.Timeout), m.allowDirective(m.ValidTo))
}

var matrixServer = regexp.MustCompile(`^(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[:.]*[0-9A-Fa-f][0-9A-Fa-f:.]*\])(?::[0-9]{1,5})?$`)

// ValidTo takes ids and aliases of rooms.
func (*Matrix) ValidTo(to string) error {
	if !isRoomID(to) && !isRoomAlias(to) {
		return errors.New("a chat on Matrix is the id of a room, such as !abc:example.org, or an alias, such as #room:example.org")
	}
	return nil
}

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
	Type     string   `json:"msgtype"`
	Body     string   `json:"body"`
	Mentions struct{} `json:"m.mentions"`
}

// An event may have 64 KiB of JSON, which includes members that servers add.
var matrixSplitter = splitter{limit: 32 << 10, size: jsonLength}

// jsonLength is how many bytes a text has as a string in JSON, if nothing is escaped that need not be.
func jsonLength(text string) int {
	return len(text) + strings.Count(text, `"`) + strings.Count(text, `\`) + strings.Count(text, "\n") + strings.Count(text, "\t")
}

// Send sends the answer, in as many messages as it takes.
func (m *Matrix) Send(ctx context.Context, d *engine.Delivery) error {
	if err := m.ValidTo(d.To); err != nil {
		return &engine.FinalError{Err: err}
	}
	parts := matrixSplitter.split(cleanText(d.Body), d.RunID)
	return sendParts(d, parts, func(part string) error {
		room, err := m.room(ctx, d)
		if err != nil {
			return err
		}
		path := fmt.Sprintf("/_matrix/client/v3/rooms/%s/send/m.room.message/%s",
			url.PathEscape(room), url.PathEscape(fmt.Sprintf("%s.%d", d.ID, d.Sent)))
		req, err := m.authorized(ctx, http.MethodPut, path, encodeJSON(matrixMessage{Type: "m.notice", Body: part}))
		if err != nil {
			return err
		}
		err = m.call(d, req, func(o *outbound.Outcome, answer map[string]any) {
			if id, _ := answer["event_id"].(string); o.Delivered && id == "" {
				markUnexpected(o, "a Matrix server")
				return
			}
			judgeMatrix(o, answer, "there is no such room, or the user of this channel has not joined it")
		})
		var final *engine.FinalError
		if errors.As(err, &final) {
			m.aliases.forget(d.To) // it may be that of another room by now
		}
		return err
	})
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
	if isRoomID(d.To) {
		return d.To, nil
	}
	if room, ok := m.aliases.room(d.To); ok {
		return room, nil
	}
	req, err := m.authorized(ctx, http.MethodGet, "/_matrix/client/v3/directory/room/"+url.PathEscape(d.To), nil)
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
	m.aliases.remember(d.To, room)
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
	case "M_LIMIT_EXCEEDED":
		o.Final = false
		o.RetryAfter = max(o.RetryAfter, readPause(answer["retry_after_ms"], time.Millisecond))
		o.WholeChannel = true // servers count by user, not by room
	}
	o.Reason = answerReason("the Matrix server", code, why)
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
	_ engine.Channel        = (*Matrix)(nil)
	_ caddy.Provisioner     = (*Matrix)(nil)
	_ caddy.CleanerUpper    = (*Matrix)(nil)
	_ caddyfile.Unmarshaler = (*Matrix)(nil)
)
