package auth

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// Anybody may send a body of many notifications. Beside itself, little is made of it before it is known who sent it.
func TestManyNotificationsAreRefusedWithoutBeingRead(t *testing.T) {
	body := func(item string, n int) []byte {
		return []byte(`{"value":[` + strings.Repeat(item+",", n-1) + item + `]}`)
	}
	verify := func(body []byte) Verdict {
		return NewClientStates("secret").Verify(&Request{Header: http.Header{}, Body: body})
	}
	const good = `{"clientState":"secret"}`
	if got := verify(body(good, maxNotifications)); !got.OK {
		t.Errorf("as many as there may be: %+v", got)
	}
	if got := verify(body(good, maxNotifications+1)); got.OK || got.Reason != ClientStatesMany {
		t.Errorf("one more: %+v", got)
	}
	for _, item := range []string{`{}`, `0`, `[]`, `{"clientState":"a"}`} {
		many := body(item, 1<<20/(len(item)+1))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		verdict := verify(many)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(len(many)) || verdict.OK {
			t.Errorf("%s: a body of %d KB takes %d KB more; %+v", item, len(many)>>10, took>>10, verdict)
		}
	}
}
