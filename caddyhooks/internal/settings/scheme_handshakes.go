package settings

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// A handshake answers a request with which a sender tries a hook out. It is asked before the request is authenticated, and authenticates it
// itself if the sender can. All other requests get no answer and the verdict OK.
type handshake func(req *auth.Request) (*SchemeAnswer, auth.Verdict)

// handshakeParts are what a handshake can be made of.
type handshakeParts struct {
	verifier auth.Verifier
	secrets  []string
	verify   auth.Tokens // verify tokens
}

// verifyTokenField is the field with the verify tokens. They open nothing but the handshake.
const verifyTokenField = "verifyToken"

// maxChallenge bounds what is sent back to a caller that nobody knows, in bytes.
const maxChallenge = 4096

// maxToldSecret bounds a secret that a sender tells, in bytes.
const maxToldSecret = 200

// Handshake returns the answer to a request with which the sender tries the hook out, nil if it is none. An error is a
// *RefusedCredential. Without a body, the request is one with another method than POST.
func (a Authentication) Handshake(req *auth.Request) (*SchemeAnswer, error) {
	if a.consents && req.Method == http.MethodOptions {
		return allowOrigin(req), nil
	}
	if a.greet == nil {
		return nil, nil
	}
	answer, verdict := a.greet(req)
	if answer == nil && !verdict.OK {
		return nil, &RefusedCredential{Authentication: a, Verdict: verdict}
	}
	return answer, nil
}

// TakesMethod reports whether requests with a method can be answered.
func (a Authentication) TakesMethod(method string) bool {
	return method == http.MethodPost || a.consents && method == http.MethodOptions || a.Scheme != nil && slices.Contains(a.Methods, method)
}

// WithoutSecrets returns the body of an authenticated request without secrets of the scheme.
func (a Authentication) WithoutSecrets(body []byte) []byte {
	if a.inBody == nil {
		return body
	}
	return []byte(a.inBody.Replace(string(body)))
}

// SecretMembers are the members of a body, however deep, whose values are secrets. A request that is refused may have such that the hook
// does not know, so they are not shown.
func (a Authentication) SecretMembers() []string {
	if a.Scheme == nil {
		return nil
	}
	return a.secretMembers
}

// echo sends a text of the caller's back. Senders prescribe text/plain, which no browser takes for a page.
func echo(challenge string) (*SchemeAnswer, auth.Verdict) {
	if challenge == "" || len(challenge) > maxChallenge {
		return nil, auth.Refuse("the challenge is empty or too long")
	}
	return &SchemeAnswer{Status: http.StatusOK, ContentType: "text/plain; charset=utf-8", Body: challenge}, auth.Accept()
}

// answerHead answers HEAD, with which the sender looks whether there is something at the URL.
func answerHead(handshakeParts) handshake {
	return func(req *auth.Request) (*SchemeAnswer, auth.Verdict) {
		if req.Method != http.MethodHead {
			return nil, auth.Accept()
		}
		return &SchemeAnswer{Status: http.StatusOK}, auth.Accept()
	}
}

// echoDropbox answers GET ?challenge=….
func echoDropbox(handshakeParts) handshake {
	return func(req *auth.Request) (*SchemeAnswer, auth.Verdict) {
		if req.Method != http.MethodGet || !req.Query().Has("challenge") {
			return nil, auth.Accept()
		}
		return echo(req.Query().Get("challenge"))
	}
}

// echoGraph answers POST ?validationToken=…, which has no body.
func echoGraph(handshakeParts) handshake {
	return func(req *auth.Request) (*SchemeAnswer, auth.Verdict) {
		if !req.Query().Has("validationToken") || len(bytes.TrimSpace(req.Body)) > 0 {
			return nil, auth.Accept()
		}
		return echo(req.Query().Get("validationToken"))
	}
}

// echoMeta answers GET ?hub.mode=subscribe&hub.verify_token=…&hub.challenge=….
func echoMeta(h handshakeParts) handshake {
	return func(req *auth.Request) (*SchemeAnswer, auth.Verdict) {
		query := req.Query()
		switch {
		case req.Method != http.MethodGet || query.Get("hub.mode") != "subscribe":
			return nil, auth.Accept()
		case h.verify.Empty():
			return nil, auth.Refuse("the hook has no verify token (verify_token)")
		case !h.verify.Has(query.Get("hub.verify_token")):
			return nil, auth.Refuse("hub.verify_token is not the verify token of the hook")
		}
		return echo(query.Get("hub.challenge"))
	}
}

// answerZoom signs a token in a request of Zoom's that is signed itself: otherwise it would sign whatever anybody sends.
func answerZoom(h handshakeParts) handshake {
	const event = "endpoint.url_validation"
	selected := new(strictjson.Selection).Paths("event", "payload.plainToken")
	return func(req *auth.Request) (*SchemeAnswer, auth.Verdict) {
		if !bytes.Contains(req.Body, []byte(event)) {
			return nil, auth.Accept()
		}
		doc, err := strictjson.ParseSelected(req.Body, selected)
		token := strictjson.TextAt(doc, "payload.plainToken")
		if err != nil || strictjson.TextAt(doc, "event") != event || token == "" || len(token) > maxChallenge {
			return nil, auth.Accept()
		}
		verdict := h.verifier.Verify(req)
		if !verdict.OK {
			return nil, verdict
		}
		mac := hmac.New(sha256.New, []byte(h.secrets[verdict.Secret]))
		mac.Write([]byte(token))
		sum := hex.EncodeToString(mac.Sum(nil))
		return jsonAnswer(`{"plainToken":` + string(text.JSONString(token)) + `,"encryptedToken":"` + sum + `"}`), verdict
	}
}

// answerNotion takes the verification token, which is the secret from then on. As long as the hook has no secret, it is shown to the
// operator, who gives it to Notion: there it turns out whether it came from Notion.
func answerNotion(h handshakeParts) handshake {
	selected := strictjson.Members("verification_token", "type")
	return func(req *auth.Request) (*SchemeAnswer, auth.Verdict) {
		if len(req.Body) > maxChallenge || !bytes.Contains(req.Body, []byte("verification_token")) {
			return nil, auth.Accept()
		}
		doc, err := strictjson.ParseSelected(req.Body, selected)
		token := strictjson.TextAt(doc, "verification_token")
		if err != nil || token == "" || len(token) > maxToldSecret || strictjson.ValueAt(doc, "type") != nil {
			return nil, auth.Accept()
		}
		answer := jsonAnswer("{}")
		if len(h.secrets) == 0 {
			answer.Reveal = token
		} else if verdict := h.verifier.Verify(req); !verdict.OK {
			return nil, verdict
		}
		return answer, auth.Accept()
	}
}

// AwaitsSecret reports whether the hook has no secret yet, since the sender has to tell it.
func (a Authentication) AwaitsSecret() bool {
	return a.Scheme != nil && a.takesSecrets() && a.minArgs == 0 && len(a.Secrets) == 0
}

// allowOrigin answers OPTIONS with WebHook-Request-Origin, with which senders of CloudEvents ask whether they may send. To say that
// requests of an origin are welcome gives nothing away: they need the secret all the same.
func allowOrigin(req *auth.Request) *SchemeAnswer {
	origin := req.Header.Get("WebHook-Request-Origin")
	if origin == "" || len(origin) > maxChallenge {
		return nil
	}
	return &SchemeAnswer{Status: http.StatusOK, Header: http.Header{
		"Allow": {http.MethodPost}, "Webhook-Allowed-Origin": {origin}, "Webhook-Allowed-Rate": {"*"},
	}}
}

// answerEventGrid answers OPTIONS as allowOrigin does, and the first event of a subscription with its code.
func answerEventGrid(h handshakeParts) handshake {
	selected := new(strictjson.Selection)
	selected.Item(0).Paths("data.validationCode")
	return func(req *auth.Request) (*SchemeAnswer, auth.Verdict) {
		if req.Method == http.MethodOptions {
			return allowOrigin(req), auth.Accept()
		}
		if req.Header.Get("Aeg-Event-Type") != "SubscriptionValidation" {
			return nil, auth.Accept()
		}
		if verdict := h.verifier.Verify(req); !verdict.OK {
			return nil, verdict
		}
		doc, err := strictjson.ParseSelected(req.Body, selected)
		events, _ := doc.([]any)
		if err != nil || len(events) == 0 {
			return nil, auth.Accept()
		}
		code := strictjson.TextAt(events[0], "data.validationCode")
		return jsonAnswer(`{"validationResponse":` + string(text.JSONString(code)) + `}`), auth.Accept()
	}
}

func jsonAnswer(body string) *SchemeAnswer {
	return &SchemeAnswer{Status: http.StatusOK, ContentType: "application/json", Body: body}
}
