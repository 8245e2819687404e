package intake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cloudevents"
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
	"hubspot": {
		map[string]string{"User-Agent": "HubSpot Connect 2.0 (http://dev.hubspot.com/) - WebHooks"},
		`[
  {
    "eventId": 3816279340,
    "subscriptionId": 25,
    "portalId": 33,
    "appId": 1160452,
    "occurredAt": {milliseconds},
    "subscriptionType": "deal.creation",
    "attemptNumber": 0,
    "objectId": 46911,
    "changeSource": "CRM",
    "changeFlag": "NEW"
  }
]`,
	},
	"zendesk": {
		map[string]string{"User-Agent": "Zendesk Webhook", "X-Zendesk-Webhook-Invocation-Id": "{id}"},
		`{
  "account_id": 22129848,
  "id": "{id}",
  "type": "zen:event-type:ticket.created",
  "subject": "zen:ticket:4711",
  "time": "{time}",
  "zendesk_event_version": "2022-11-06",
  "event": {},
  "detail": {
    "id": "4711",
    "subject": "Login loops",
    "description": "After a password reset the login page comes back again and again.",
    "priority": "NORMAL",
    "status": "NEW",
    "requester_id": "8447388090494"
  }
}`,
	},
	"calendly": {
		nil,
		`{
  "created_at": "{time}",
  "created_by": "https://api.calendly.com/users/AAAAAAAAAAAAAAAA",
  "event": "invitee.created",
  "payload": {
    "uri": "https://api.calendly.com/scheduled_events/GBGBDCAADAEDCRZ2/invitees/{id}",
    "name": "Ada Lovelace",
    "email": "ada@example.com",
    "status": "active",
    "scheduled_event": {
      "uri": "https://api.calendly.com/scheduled_events/GBGBDCAADAEDCRZ2",
      "name": "Introduction",
      "start_time": "2026-11-20T15:00:00.000000Z"
    }
  }
}`,
	},
	"square": {
		map[string]string{"User-Agent": "Square Connect v2", "Square-Environment": "Production"},
		`{
  "merchant_id": "6SSW7HV8K2ST5",
  "location_id": "S8GWD5R9QB376",
  "type": "dispute.created",
  "event_id": "{id}",
  "created_at": "{time}",
  "data": {
    "type": "dispute",
    "id": "ORSEVtZAJxb37RA1EiGw",
    "object": {
      "dispute": {
        "id": "ORSEVtZAJxb37RA1EiGw",
        "amount_money": {"amount": 8801, "currency": "EUR"},
        "reason": "NO_KNOWLEDGE",
        "state": "EVIDENCE_REQUIRED"
      }
    }
  }
}`,
	},
	"typeform": {
		nil,
		`{
  "event_id": "{id}",
  "event_type": "form_response",
  "form_response": {
    "form_id": "lT4Z3j",
    "token": "a3a12ec67a1365927098a606107fac15",
    "submitted_at": "{time}",
    "definition": {"id": "lT4Z3j", "title": "Feedback"},
    "answers": [
      {"type": "text", "text": "The reports are slow.", "field": {"id": "JwWggjAKtOkA", "type": "long_text", "ref": "what"}},
      {"type": "number", "number": 3, "field": {"id": "DlXFaesGBpoF", "type": "rating", "ref": "stars"}}
    ]
  }
}`,
	},
	"intercom": {
		map[string]string{"User-Agent": "intercom-webhooks/1.0"},
		`{
  "type": "notification_event",
  "app_id": "a86dr8yl",
  "id": "notif_{id}",
  "topic": "conversation.user.created",
  "delivery_attempts": 1,
  "created_at": {seconds},
  "data": {
    "type": "notification_event_data",
    "item": {
      "type": "conversation",
      "id": "1911149811",
      "source": {
        "type": "conversation",
        "body": "The login loops.",
        "author": {"type": "user", "name": "Ada", "email": "ada@example.com"}
      }
    }
  }
}`,
	},
	"mailgun": {
		map[string]string{"User-Agent": "mailgun/treq-20.9.0"},
		`{
  "signature": {"timestamp": "TIME", "token": "TOKEN", "signature": "SIGNATURE"},
  "event-data": {
    "id": "{id}",
    "event": "failed",
    "severity": "permanent",
    "timestamp": {seconds}.17,
    "recipient": "ada@example.com",
    "delivery-status": {"code": 550, "message": "Mailbox unavailable."},
    "message": {"headers": {"subject": "Your invoice"}}
  }
}`,
	},
	"sendgrid": {
		map[string]string{"User-Agent": "SendGrid Event API"},
		`[
  {
    "email": "ada@example.com",
    "timestamp": {seconds},
    "smtp-id": "<14c5d75ce93.dfd.64b469@ismtpd-555>",
    "event": "bounce",
    "sg_event_id": "{id}",
    "sg_message_id": "14c5d75ce93.dfd.64b469.filter0001.16648.5515E0B88.0",
    "type": "bounce",
    "reason": "500 unknown recipient",
    "status": "5.0.0"
  }
]`,
	},
	"teams": {
		map[string]string{"User-Agent": "Microsoft-SkypeBotApi (Microsoft-BotFramework/3.0)"},
		`{
  "type": "message",
  "id": "{milliseconds}",
  "timestamp": "{time}",
  "serviceUrl": "https://smba.trafficmanager.net/emea/",
  "channelId": "msteams",
  "from": {"id": "29:1XJKJMvc5GBtc2JwZq0oj8tHZmzrQgFmB39ATiQWA85gQtHieVkKilBZ9XHoq9j7Zaqt7CZ-NJWi7me2kHTL3Bw", "name": "Ada Lovelace"},
  "conversation": {"isGroup": true, "id": "19:253b1f341670408fb6fe51050b6e5ceb@thread.skype;messageid={milliseconds}"},
  "text": "<at>agent</at> What broke last night?"
}`,
	},
	"notion": {
		map[string]string{"User-Agent": "notion-api"},
		`{
  "id": "{id}",
  "timestamp": "{time}",
  "workspace_id": "13950b26-c203-4f3b-b97d-93ec06319565",
  "subscription_id": "29d75c0d-5546-4414-8459-7b7a92f1fc4b",
  "integration_id": "0ef2e755-4912-8096-91c1-00376a88a5ca",
  "type": "comment.created",
  "authors": [{"id": "c7c11cca-1d73-471d-9b6e-bdef51470190", "type": "person"}],
  "attempt_number": 1,
  "entity": {"id": "153104cd-477e-801d-8ef4-d3e3d1a1e1b1", "type": "comment"},
  "data": {"page_id": "0ef104cd-477e-80e1-8571-cfd10e92339a"}
}`,
	},
	"zoom": {
		map[string]string{"User-Agent": "Zoom Marketplace/1.0a"},
		`{
  "event": "recording.completed",
  "event_ts": {milliseconds},
  "payload": {
    "account_id": "AAAAAABBBB",
    "object": {
      "id": 1234567890,
      "uuid": "4444AAAiAAAAAiAiAiiAii==",
      "host_id": "x1yCzABCDEfg23HiJKl4mN",
      "topic": "Weekly",
      "start_time": "{time}",
      "duration": 60,
      "share_url": "https://example.zoom.us/rec/share/1"
    }
  }
}`,
	},
	"meta": {
		map[string]string{"User-Agent": "facebookexternalua"},
		`{
  "object": "whatsapp_business_account",
  "entry": [
    {
      "id": "102290129340398",
      "changes": [
        {
          "field": "messages",
          "value": {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": "15550783881", "phone_number_id": "106540352242922"},
            "contacts": [{"profile": {"name": "Ada"}, "wa_id": "15005550006"}],
            "messages": [
              {
                "from": "15005550006",
                "id": "wamid.{id}",
                "timestamp": "{seconds}",
                "type": "text",
                "text": {"body": "Is the shop down?"}
              }
            ]
          }
        }
      ]
    }
  ]
}`,
	},
	"dropbox": {
		map[string]string{"User-Agent": "DropboxWebhooks/1.0"},
		`{
  "list_folder": {"accounts": ["dbid:AAH4f99T0taONIb-OurWxbNQ6ywGRopQngc"]},
  "delta": {"users": [12345678]}
}`,
	},
	"graph": {
		nil,
		`{
  "value": [
    {
      "id": "{id}",
      "subscriptionId": "7f105c7d-2dc5-4530-97cd-4e7ae6534c07",
      "subscriptionExpirationDateTime": "2026-11-19T09:11:28.000Z",
      "clientState": "the-secret-of-the-subscription",
      "changeType": "created",
      "resource": "Users/ddfcd489-628b-40d7-b48b-57002df800e5/Messages/AAMkAGUwNjQ4ZjIxLTQ3Y2YtNDViMi1iZjc4",
      "tenantId": "84bd8158-6d4d-4958-8b9f-9d6445542f95",
      "resourceData": {"@odata.type": "#Microsoft.Graph.Message", "id": "AAMkAGUwNjQ4ZjIxLTQ3Y2YtNDViMi1iZjc4"}
    }
  ]
}`,
	},
	"eventgrid": {
		map[string]string{"aeg-event-type": "Notification", "aeg-delivery-count": "0"},
		`[
  {
    "id": "{id}",
    "topic": "/subscriptions/5f750a97/resourceGroups/acme/providers/Microsoft.Storage/storageAccounts/acme",
    "subject": "/blobServices/default/containers/reports/blobs/q3.pdf",
    "eventType": "Microsoft.Storage.BlobCreated",
    "eventTime": "{time}",
    "data": {"api": "PutBlob", "contentType": "application/pdf", "url": "https://acme.blob.core.windows.net/reports/q3.pdf"},
    "dataVersion": "",
    "metadataVersion": "1"
  }
]`,
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
	if h.Body == settings.CloudEvents && json.Valid(made.Body) {
		made.Header.Set("Content-Type", cloudevents.StructuredType)
		made.Body = fmt.Appendf(nil, `{
  "specversion": "1.0",
  "id": "%s",
  "source": "/example",
  "type": "com.example.event",
  "time": "%s",
  "data": %s
}`, uuid.NewString(), now.UTC().Format(time.RFC3339), made.Body)
	}
	WithContentType(made.Header, made.Body, h.Body)
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

// WithContentType sets the content type of a payload, if there is none yet. form is that of the hook's body.
func WithContentType(header http.Header, payload []byte, form string) {
	if header.Get("Content-Type") != "" {
		return
	}
	contentType := "application/json"
	switch {
	case form == settings.CloudEvents && cloudevents.HasAttributes(header):
	case form == settings.CloudEvents && bytes.HasPrefix(bytes.TrimSpace(payload), []byte("[")):
		contentType = cloudevents.BatchType
	case form == settings.CloudEvents:
		contentType = cloudevents.StructuredType
	case !json.Valid(payload) && beginsAsForm.Match(payload):
		contentType = formType
	}
	header.Set("Content-Type", contentType)
}
