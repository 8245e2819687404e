package engine_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestDeliveriesKnowWhereTheyGo(t *testing.T) {
	for _, c := range []struct {
		delivery engine.Delivery
		want     engine.Destination
		host     string
	}{
		{engine.Delivery{Callback: "https://Example.com/a?b"}, engine.Destination{Host: "https://example.com:443"}, "example.com:443"},
		{engine.Delivery{Callback: "HTTP://example.com:443/"}, engine.Destination{Host: "http://example.com:443"}, "example.com:443"},
		{engine.Delivery{Callback: "http://example.com"}, engine.Destination{Host: "http://example.com:80"}, "example.com:80"},
		{engine.Delivery{Callback: "http://[::1]:8080/"}, engine.Destination{Host: "http://[::1]:8080"}, "[::1]:8080"},
		{engine.Delivery{Channel: "ops", To: "-1001"}, engine.Destination{Host: "channel/ops", Chat: "-1001"}, ""},
		{engine.Delivery{Channel: "example.com:443", To: "a"}, engine.Destination{Host: "channel/example.com:443", Chat: "a"}, ""},
	} {
		if got := c.delivery.Destination(); got != c.want || c.delivery.CallbackHost() != c.host {
			t.Errorf("%+v: got %+v, %s", c.delivery, got, c.delivery.CallbackHost())
		}
	}
}

// FuzzParseDeliveryID takes what DeliveryID makes, and nothing else.
func FuzzParseDeliveryID(f *testing.F) {
	for _, id := range []string{"", "msg_", "msg_0198c0de00007000800000000000000a_0", "msg_0198c0de00007000800000000000000a_255", "msg_0198c0de00007000800000000000000a_256",
		"msg_0198C0DE00007000800000000000000A_0", "msg_0198c0de00007000800000000000000a_00", "msg_0198c0de-0000-7000-8000-00000000000a_0", "msg_{0198c0de00007000800000000000000a}_+1"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		runID, index, ok := engine.ParseDeliveryID(id)
		if !ok {
			return
		}
		if _, err := uuid.Parse(runID); err != nil || index < 0 || index > 255 || engine.DeliveryID(runID, index) != id {
			t.Errorf("%q is read as %s, %d", id, runID, index)
		}
	})
}
