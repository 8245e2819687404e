package intake

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// senderExample is a request of a sender, but for its credential. Of its texts, {id} is an id that is new each time, {time} is the time,
// and {seconds} and {milliseconds} are the time since 1970.
type senderExample struct {
	headers map[string]string
	payload string
}

// anySender is the example for hooks that are for no sender in particular.
var anySender = senderExample{payload: `{
  "action": "opened",
  "issue": {
    "number": 1207,
    "title": "Login loops after password reset",
    "html_url": "https://example.com/acme/api/issues/1207",
    "user": {"login": "mira"},
    "labels": [{"name": "bug"}],
    "body": "After a reset the login page comes back again and again."
  },
  "repository": {"full_name": "acme/api"},
  "sender": {"login": "mira"}
}`}

// senderExamples are the examples by scheme. The page, `caddy hooks send` and `caddy hooks try` send them.
var senderExamples = map[string]senderExample{
	"github": {
		map[string]string{"User-Agent": "GitHub-Hookshot/044aadd", "X-GitHub-Event": "issues", "X-GitHub-Delivery": "{id}",
			"X-GitHub-Hook-ID": "292430182"},
		anySender.payload,
	},
	"gitlab": {
		map[string]string{"User-Agent": "GitLab/18.0.0", "X-Gitlab-Event": "Issue Hook", "X-Gitlab-Event-UUID": "{id}",
			"Idempotency-Key": "{id}"},
		`{
  "object_kind": "issue",
  "event_type": "issue",
  "user": {"name": "Mira", "username": "mira"},
  "project": {"id": 1, "path_with_namespace": "acme/api", "web_url": "https://gitlab.example.com/acme/api"},
  "object_attributes": {
    "iid": 23,
    "title": "Login loops after password reset",
    "action": "open",
    "state": "opened",
    "url": "https://gitlab.example.com/acme/api/-/issues/23"
  },
  "labels": [{"title": "bug"}]
}`,
	},
	"bitbucket": {
		map[string]string{"User-Agent": "Bitbucket-Webhooks/2.0", "X-Event-Key": "pullrequest:created", "X-Request-UUID": "{id}",
			"X-Hook-UUID": "9f7d1f1c-5f5e-4f0e-9f0a-0f0f5a1d2c3b", "X-Attempt-Number": "1"},
		`{
  "actor": {"display_name": "Mira", "nickname": "mira"},
  "pullrequest": {
    "id": 42,
    "title": "Keep the session after a password reset",
    "state": "OPEN",
    "author": {"display_name": "Mira"},
    "source": {"branch": {"name": "fix-reset"}},
    "destination": {"branch": {"name": "main"}},
    "links": {"html": {"href": "https://bitbucket.org/acme/api/pull-requests/42"}}
  },
  "repository": {"full_name": "acme/api"}
}`,
	},
	"stripe": {
		map[string]string{"User-Agent": "Stripe/1.0 (+https://stripe.com/docs/webhooks)"},
		`{
  "id": "evt_{id}",
  "object": "event",
  "api_version": "2025-03-31.basil",
  "created": {seconds},
  "livemode": false,
  "type": "invoice.payment_failed",
  "data": {
    "object": {
      "id": "in_77",
      "object": "invoice",
      "customer": "cus_77",
      "customer_email": "mira@example.com",
      "amount_due": 4200,
      "currency": "eur",
      "attempt_count": 1
    }
  }
}`,
	},
	"slack": {
		map[string]string{"User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)"},
		`{
  "type": "event_callback",
  "team_id": "T0001",
  "api_app_id": "A0001",
  "event_id": "Ev{id}",
  "event_time": {seconds},
  "event": {
    "type": "app_mention",
    "user": "U0001",
    "channel": "C0001",
    "text": "<@U0002> What broke last night?",
    "ts": "{seconds}.000100"
  }
}`,
	},
	"shopify": {
		map[string]string{"X-Shopify-Topic": "orders/create", "X-Shopify-Shop-Domain": "acme.myshopify.com", "X-Shopify-Api-Version": "2025-07",
			"X-Shopify-Webhook-Id": "{id}", "X-Shopify-Event-Id": "{id}", "X-Shopify-Triggered-At": "{time}"},
		`{
  "id": 820982911946154508,
  "name": "#1001",
  "email": "mira@example.com",
  "created_at": "{time}",
  "currency": "EUR",
  "total_price": "42.00",
  "financial_status": "paid",
  "line_items": [{"title": "Desk lamp", "quantity": 1, "price": "42.00"}]
}`,
	},
	"linear": {
		map[string]string{"User-Agent": "Linear-Webhook", "Linear-Event": "Issue", "Linear-Delivery": "{id}"},
		`{
  "action": "create",
  "type": "Issue",
  "createdAt": "{time}",
  "actor": {"name": "Mira", "type": "user"},
  "data": {
    "id": "2174add1-f7c8-44e3-bbf3-2d60b5ea8bc9",
    "identifier": "API-12",
    "title": "Login loops after password reset",
    "priority": 2,
    "state": {"name": "Todo", "type": "unstarted"},
    "team": {"key": "API", "name": "API"}
  },
  "url": "https://linear.app/acme/issue/API-12",
  "webhookTimestamp": {milliseconds}
}`,
	},
	"sentry": {
		map[string]string{"Sentry-Hook-Resource": "event_alert", "Sentry-Hook-Timestamp": "{seconds}", "Request-ID": "{id}"},
		`{
  "action": "triggered",
  "actor": {"type": "application", "id": "sentry", "name": "Sentry"},
  "data": {
    "triggered_rule": "Errors at the login",
    "event": {
      "event_id": "e4874d664c3540c1a32eab185f12c5ab",
      "title": "TypeError: user is undefined",
      "culprit": "app/login.js in reset",
      "level": "error",
      "web_url": "https://sentry.io/organizations/acme/issues/1170820242/"
    }
  }
}`,
	},
	"pagerduty": {
		map[string]string{"User-Agent": "PagerDuty-Webhook/V3.0", "X-Webhook-Subscription": "PHXAJ0B"},
		`{
  "event": {
    "id": "{id}",
    "event_type": "incident.triggered",
    "resource_type": "incident",
    "occurred_at": "{time}",
    "data": {
      "id": "PGR0VU2",
      "type": "incident",
      "number": 2,
      "title": "The disk of web-3 is 97 % full",
      "status": "triggered",
      "urgency": "high",
      "html_url": "https://acme.pagerduty.com/incidents/PGR0VU2",
      "service": {"id": "PF9KMXH", "summary": "api"}
    }
  }
}`,
	},
	"grafana": {
		map[string]string{"User-Agent": "Grafana"},
		`{
  "receiver": "hooks",
  "status": "firing",
  "alerts": [
    {
      "status": "firing",
      "labels": {"alertname": "DiskFull", "instance": "web-3", "severity": "critical"},
      "annotations": {"summary": "The disk of web-3 is 97 % full"},
      "startsAt": "{time}",
      "endsAt": "0001-01-01T00:00:00Z",
      "fingerprint": "c6eadffa33fcdf37",
      "generatorURL": "https://grafana.example.com/alerting/grafana/1/view"
    }
  ],
  "groupLabels": {"alertname": "DiskFull"},
  "commonLabels": {"alertname": "DiskFull", "instance": "web-3", "severity": "critical"},
  "commonAnnotations": {"summary": "The disk of web-3 is 97 % full"},
  "externalURL": "https://grafana.example.com/",
  "version": "1",
  "groupKey": "{}:{alertname=\"DiskFull\"}",
  "title": "[FIRING:1] DiskFull",
  "state": "alerting"
}`,
	},
	"discord": {
		map[string]string{"User-Agent": "Discord-Interactions/1.0 (+https://discord.com)"},
		`{
  "id": "{milliseconds}",
  "application_id": "845027738276462632",
  "type": 2,
  "data": {
    "id": "771825006014889984",
    "name": "ask",
    "type": 1,
    "options": [{"name": "question", "type": 3, "value": "What broke last night?"}]
  },
  "guild_id": "290926798626357999",
  "channel_id": "645027906669510667",
  "member": {"user": {"id": "53908232506183680", "username": "mira"}},
  "token": "unused-here",
  "version": 1
}`,
	},
	"telegram": {
		nil,
		`{
  "update_id": {milliseconds},
  "message": {
    "message_id": 7,
    "date": {seconds},
    "from": {"id": 4711, "is_bot": false, "first_name": "Mira", "username": "mira"},
    "chat": {"id": 4711, "type": "private", "first_name": "Mira"},
    "text": "What broke last night?"
  }
}`,
	},
	"twilio": {
		map[string]string{"User-Agent": "TwilioProxy/1.1", "I-Twilio-Idempotency-Token": "{id}", "Content-Type": formType},
		"AccountSid=AC00000000000000000000000000000000&MessageSid=SM00000000000000000000000000000000" +
			"&From=%2B14155550100&To=%2B14155550199&Body=What+broke+last+night%3F&NumMedia=0",
	},
	"standard": {
		nil,
		`{
  "type": "contact.created",
  "timestamp": "{time}",
  "data": {"id": "1f81eb52-5198-4599-803e-771906343485", "email": "mira@example.com"}
}`,
	},
}

// ExampleFor makes an example of a request to a hook with some headers. A built-in endpoint needs no mapping.
func ExampleFor(name string, m settings.Mapping, header http.Header) (*Request, error) {
	req := &Request{Header: make(http.Header), Body: []byte(builtInExamples[name])}
	if len(req.Body) == 0 {
		h := &settings.Hook{Mapping: m}
		if err := h.ParseTemplates(); err != nil {
			return nil, err
		}
		req = Example(h, time.Now())
	}
	maps.Copy(req.Header, header)
	return req, nil
}

// builtInExamples are bodies for the built-in endpoints.
var builtInExamples = map[string]string{
	"wake":  `{"text": "The nightly backup is done."}`,
	"agent": `{"message": "What broke last night?"}`,
}

const formType = "application/x-www-form-urlencoded"

// Example makes a request as the sender of the hook sends it, which the conditions about headers and query parameters let through.
func Example(h *settings.Hook, now time.Time) *Request {
	of, known := senderExamples[h.AuthMode]
	if !known {
		of = anySender
	}
	fill := strings.NewReplacer("{id}", uuid.NewString(), "{time}", now.UTC().Format(time.RFC3339),
		"{seconds}", strconv.FormatInt(now.Unix(), 10), "{milliseconds}", strconv.FormatInt(now.UnixMilli(), 10))
	made := &Request{Header: make(http.Header), Values: make(url.Values), Body: []byte(fill.Replace(of.payload))}
	for name, value := range of.headers {
		made.Header.Set(name, fill.Replace(value))
	}
	if h.IdempotencyHeader != "" && made.Header.Get(h.IdempotencyHeader) == "" {
		made.Header.Set(h.IdempotencyHeader, uuid.NewString())
	}
	if h.Body == "form" && json.Valid(made.Body) {
		made.Body = []byte("payload=" + url.QueryEscape(string(made.Body)))
		made.Header.Set("Content-Type", formType)
	}
	WithContentType(made.Header, made.Body)
	addRead(h, made)
	fulfil(h, made)
	return made
}

// addRead adds the headers and query parameters that templates show.
func addRead(h *settings.Hook, made *Request) {
	for _, source := range slices.Concat(h.Template.Sources(), h.ChatTemplate.Sources()) {
		if made.Values.Has(source.Name) || made.Header.Get(source.Name) != "" || source.Kind == "header" && h.HidesHeader(source.Name) {
			continue
		}
		made.set(source, "example")
	}
}

// fulfil adds and changes headers and query parameters until the conditions about them let the request through, as far as that is found.
func fulfil(h *settings.Hook, made *Request) {
	for _, f := range h.Filters {
		lets := func() bool {
			steps := template.ConditionSteps
			holds, decided := f.Holds(Filtering(h, made).Input, &steps)
			return (holds && decided) == f.Must
		}
		if f.NeedsBody() || lets() {
			continue
		}
		for _, text := range []string{f.Example(), "example", ""} {
			if made.set(f.Source(), text); lets() {
				break
			}
		}
	}
}

// set sets a header or a query parameter. An empty text takes it away.
func (req *Request) set(source template.Source, text string) {
	switch source.Kind {
	case "header":
		if req.Header.Del(source.Name); text != "" {
			req.Header.Set(source.Name, text)
		}
	case "query":
		if req.Values.Del(source.Name); text != "" {
			req.Values.Set(source.Name, text)
		}
	}
}

// WithContentType sets the content type of a payload, if there is none yet.
func WithContentType(header http.Header, payload []byte) {
	if header.Get("Content-Type") != "" {
		return
	}
	contentType := "application/json"
	if !json.Valid(payload) && beginsAsForm.Match(payload) {
		contentType = formType
	}
	header.Set("Content-Type", contentType)
}
