package auth

import (
	"crypto/sha256"
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/form"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// Mailgun verifies requests whose body has a signature of a time and of a random token. The rest of the body is not signed. It cannot sign.
type Mailgun struct{ hmac *HMAC }

// The headers that stand for the parts of the body.
const (
	mailgunSignature = "Signature"
	mailgunTime      = "Timestamp"
	mailgunToken     = "Token"
)

// MailgunUnsigned is the reason if the body has no signature.
const MailgunUnsigned Reason = "the body has no signature: timestamp, token and signature are missing"

// NewMailgun returns a verifier of signatures that are made with one of the keys.
func NewMailgun(tolerance time.Duration, keys ...[]byte) (*Mailgun, error) {
	made, err := NewHMAC(Signature{
		Header: mailgunSignature, Encoding: Hex, Signed: []Part{Time, HeaderWithout(" ", mailgunToken)},
		Time: Timestamp{Header: mailgunTime, Tolerance: tolerance},
	}, keys...)
	return &Mailgun{made}, err
}

// Verify accepts a request with a good signature, whose timestamp is not off.
func (m *Mailgun) Verify(req *Request) Verdict {
	asked, ok := mailgunRequest(req)
	if !ok {
		return RefuseMissing(MailgunUnsigned)
	}
	verdict := m.hmac.Verify(asked)
	verdict.Missing = false
	return verdict
}

// Content returns a digest of the time and the token in a request that Verify accepted. Another body with the same ones is a replay.
func (m *Mailgun) Content(req *Request) (digest [sha256.Size]byte, ok bool) {
	asked, ok := mailgunRequest(req)
	if !ok {
		return digest, false
	}
	return m.hmac.Content(asked)
}

// mailgunRequest has what is signed in its headers. In JSON it is in an object of its own, in a form beside the other fields.
func mailgunRequest(req *Request) (_ *Request, ok bool) {
	const in = "signature."
	doc, err := strictjson.ParseSelected(req.Body,
		new(strictjson.Selection).Paths(in+"timestamp", in+"token", in+"signature"))
	prefix := in
	if err != nil {
		prefix = ""
		if doc, err = form.Fields(req.Body); err != nil {
			return nil, false
		}
	}
	header := make(http.Header)
	for name, member := range map[string]string{mailgunSignature: "signature", mailgunTime: "timestamp", mailgunToken: "token"} {
		text := strictjson.TextAt(doc, prefix+member)
		if text == "" {
			return nil, false
		}
		header[name] = []string{text}
	}
	return &Request{Header: header, Now: req.Now}, true
}

// ClientStates verifies the notifications of Microsoft Graph, each of which has the secret of its subscription in the body.
type ClientStates struct{ tokens Tokens }

// The reasons of ClientStates.
const (
	ClientStateMissing Reason = "the body has no notification, or one without clientState"
	ClientStateUnknown Reason = "the clientState of a notification is not one of the secrets"
	ClientStatesMany   Reason = "the body has more than 1,000 notifications"
)

// maxNotifications bounds what is made of a body that anybody may have sent.
const maxNotifications = 1000

// NewClientStates returns a verifier that takes any of the secrets.
func NewClientStates(secrets ...string) ClientStates { return ClientStates{NewTokens(secrets...)} }

// Verify accepts a request if all of its notifications have one of the secrets.
func (c ClientStates) Verify(req *Request) Verdict {
	selected := new(strictjson.Selection)
	selected.Member("value").Item(maxNotifications).Member("clientState")
	doc, err := strictjson.ParseSelected(req.Body, selected)
	notifications, _ := strictjson.ValueAt(doc, "value").([]any)
	if err != nil || len(notifications) == 0 {
		return RefuseMissing(ClientStateMissing)
	}
	if len(notifications) > maxNotifications {
		return Refuse(ClientStatesMany)
	}
	secret, unknown := 0, false
	for _, notification := range notifications {
		state, _ := strictjson.ValueAt(notification, "clientState").(string)
		if state == "" {
			return RefuseMissing(ClientStateMissing)
		}
		if secret = c.tokens.compare(state); secret == 0 {
			unknown = true
		}
	}
	if unknown {
		return Refuse(ClientStateUnknown)
	}
	return AcceptBy(secret - 1)
}

// Interface guards
var _ Timed = (*Mailgun)(nil)
