package channels

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

func init() {
	caddy.RegisterModule(Teams{})
}

// Teams is a channel that posts answers to Microsoft Teams, as Adaptive Cards, by the URL of a workflow. The URL is a secret, and stands
// for one chat or channel, so `to` can be any name.
//
// A workflow cannot tell a repeat: when its answer gets lost, a message is posted twice.
type Teams struct {
	API
}

// CaddyModule returns the Caddy module information.
func (Teams) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.channels.teams",
		New: func() caddy.Module { return new(Teams) },
	}
}

// Provision sets up the channel.
func (t *Teams) Provision(caddy.Context) error {
	if err := t.provision("teams", "", checkURL, t.ValidTo); err != nil {
		return err
	}
	t.secrets = secretsInURL(t.url)
	if u, err := url.Parse(t.url); err == nil && u.Query().Get("sig") != "" {
		t.secrets = append(t.secrets, u.Query().Get("sig"))
	}
	return nil
}

// UnmarshalCaddyfile parses:
//
//	channel <name> teams <url> {
//		timeout  <duration>
//		allow_to <to>...
//	}
func (t *Teams) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if err := t.unmarshalURL(d, "teams"); err != nil {
		return err
	}
	return caddyconf.ReadBlock(d, "channel teams", timeoutDirective(&t.Timeout), t.allowDirective(t.ValidTo))
}

// ValidTo takes any name that can be printed.
func (*Teams) ValidTo(to string) error { return checkChatName(to) }

// teamsMessage is what the workflows of Teams expect.
type teamsMessage struct {
	Type        string            `json:"type"`
	Attachments []teamsAttachment `json:"attachments"`
}

type teamsAttachment struct {
	ContentType string    `json:"contentType"`
	Content     teamsCard `json:"content"`
}

type teamsCard struct {
	Schema  string      `json:"$schema"`
	Type    string      `json:"type"`
	Version string      `json:"version"`
	Body    []teamsText `json:"body"`
	Teams   teamsWidth  `json:"msteams"`
}

// teamsText is a TextBlock. Without entities in the card, no text of it mentions anybody.
type teamsText struct {
	Type string `json:"type"`
	Text string `json:"text"`
	Wrap bool   `json:"wrap"`
}

type teamsWidth struct {
	Width string `json:"width"`
}

// A message may have 28 KB, which includes what is around the text.
var teamsSplitter = splitter{limit: 24 << 10, size: jsonLength}

// Send posts the answer, in as many messages as it takes.
func (t *Teams) Send(ctx context.Context, d *engine.Delivery) error {
	if err := t.ValidTo(d.To); err != nil {
		return &engine.FinalError{Err: err}
	}
	return sendParts(d, teamsSplitter.split(cleanText(d.Body), d.RunID), func(part string) error {
		card := teamsCard{
			Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4",
			Body: []teamsText{{Type: "TextBlock", Text: part, Wrap: true}}, Teams: teamsWidth{Width: "Full"},
		}
		req, err := t.request(ctx, http.MethodPost, "", encodeJSON(teamsMessage{
			Type: "message", Attachments: []teamsAttachment{{ContentType: "application/vnd.microsoft.card.adaptive", Content: card}},
		}))
		if err != nil {
			return err
		}
		return t.call(d, req, judgeTeams)
	})
}

// judgeTeams reads {"error": {"code": …}}. Workflows answer 202; the webhooks that were there before them answer 200.
func judgeTeams(o *outbound.Outcome, answer map[string]any) {
	if o.Delivered {
		if !slices.Contains([]int{http.StatusOK, http.StatusAccepted}, o.Status) {
			markUnexpected(o, "Teams")
		}
		return
	}
	failure, _ := answer["error"].(map[string]any)
	code, _ := failure["code"].(string)
	why := teamsReasons[code]
	if why == "" {
		switch o.Status {
		case http.StatusUnauthorized, http.StatusForbidden:
			why = "the URL of this channel is wrong, or lets only members of the organisation in: choose anyone in the workflow"
		case http.StatusNotFound, http.StatusGone:
			why = "there is no such workflow"
		case http.StatusRequestEntityTooLarge:
			why = "the message is too long for it"
		default:
			why = explainStatus(o.Status)
		}
	}
	o.Reason = answerReason("Teams", o.Status, why)
}

// teamsReasons explains error codes to an operator.
var teamsReasons = map[string]string{
	"WorkflowNotFound":                    "there is no such workflow",
	"WorkflowTriggerIsNotEnabled":         "the workflow is switched off",
	"WorkflowDisabled":                    "the workflow is switched off",
	"TriggerInputSchemaMismatch":          "the workflow expects another message: make it from the template for webhooks",
	"DirectApiAuthorizationRequired":      "the URL of this channel lacks its signature",
	"DirectApiInvalidAuthorizationScheme": "the workflow lets only members of the organisation in: choose anyone in it",
}

// Interface guards
var (
	_ engine.Channel        = (*Teams)(nil)
	_ caddy.Provisioner     = (*Teams)(nil)
	_ caddy.CleanerUpper    = (*Teams)(nil)
	_ caddyfile.Unmarshaler = (*Teams)(nil)
)
