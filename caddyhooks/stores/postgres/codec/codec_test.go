package codec

import (
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Rows that an earlier version has written must stay readable, so the JSON stays as it is.
func TestRunsKeepTheirJSON(t *testing.T) {
	run, err := EncodeRun(&engine.Run{
		ID: "id", ChatID: "chat", Hook: "hook", Runner: "runner", AcceptedAt: time.Unix(1, 0),
		Action: engine.Agent, Name: `a\b`, Message: "hello", Metadata: []byte(`{"a":1}`), Schema: []byte(`{}`), Tier: "smart", ValidationTier: "deep",
		MemoryPreset: "disabled", Sync: true, CallbackURL: "https://example.com/", Channel: "log", To: "to", Timeout: time.Second, QueueTime: 2, History: 3,
		TraceParent: "trace", AgainOf: "again", NewChat: true, Test: true, Fold: engine.Fold{Window: 4, Max: 5, Alike: 6}, Key: &engine.Key{AnyBody: true},
		Owner: "node", Together: []engine.Sibling{{ID: "id", ChatID: "chat"}}, Client: "::1", KeyHeader: "Idempotency-Key",
	})
	const zero = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	if want := `{"action":"agent","name":"a\\\\b","message":"hello","metadata":"{\"a\":1}","schema":"{}","tier":"smart","validationTier":"deep",` +
		`"memoryPreset":"disabled","sync":true,"callbackUrl":"https://example.com/","channel":"log","to":"to","timeout":1000000000,"queueTime":2,"history":3,` +
		`"traceParent":"trace","againOf":"again","newChat":true,"test":true,"foldWindow":4,"foldMax":5,"foldAlike":6,` +
		`"key":{"id":"` + zero + `","body":"` + zero + `","anyBody":true},"owner":"node","together":[{"id":"id","chat":"chat"}],"client":"::1",` +
		`"keyHeader":"Idempotency-Key"}`; err != nil || run != want {
		t.Errorf("got  %s, %v\nwant %s", run, err, want)
	}
	end, err := EncodeEnding(&engine.Outcome{
		Status: engine.Failed, Text: "text", HasText: true, JSON: []byte{}, Repairs: 1, Checked: true, Failure: engine.SchemaUnmet, Message: "message",
		RetryAfter: 2, SessionRenewed: true, Account: engine.Account{CancelledBy: "by", Reason: "reason", LastAnswer: "last", ValidationErrors: []string{"e"},
			Permissions: []engine.Permission{{Kind: "read", Title: "t", Answer: "allowed"}}, MorePermissions: 3},
	}, []engine.Step{{Phase: engine.PhaseTurn, StartedAt: time.Unix(1, 0).UTC(), Took: 4, Tier: "smart", Bytes: 5, Errors: []string{"e"}}})
	if want := `{"status":"failed","text":"text","hasText":true,"json":"","repairs":1,"checked":true,"failure":"schema_unmet","message":"message","retryAfter":2,` +
		`"cancelledBy":"by","reason":"reason","lastAnswer":"last","validationErrors":["e"],"sessionRenewed":true,` +
		`"permissions":[{"kind":"read","title":"t","answer":"allowed"}],"morePermissions":3,` +
		`"steps":[{"phase":"turn","startedAt":"1970-01-01T00:00:01Z","took":4,"tier":"smart","bytes":5,"errors":["e"]}]}`; err != nil || end != want {
		t.Errorf("got  %s, %v\nwant %s", end, err, want)
	}
}
