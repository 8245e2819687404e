//go:build real

package channels

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

// The inbox of the example plays a homeserver, too.
func TestExampleInboxKnowsAliases(t *testing.T) {
	// Not parallel: another test could listen on the port that this one leaves.
	inbox := realtest.Command(t, "python3", "../../examples/chat-channels/inbox.py")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	l.Close()
	inbox.Env = append(os.Environ(), "PORT="+port)
	if err := inbox.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = inbox.Process.Kill()
		_ = inbox.Wait()
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the inbox does not listen: %v", err)
		}
	}
	channel := loadChannel(t, "matrix http://"+address+" hush-1")
	if err := channel.Send(t.Context(), delivery("!first:example.org", "first")); err != nil {
		t.Fatal(err)
	}
	if err := channel.Send(t.Context(), delivery("#team:example.org", "second")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first", "second"} {
		resp, err := http.Get("http://" + address + "/next")
		if err != nil {
			t.Fatal(err)
		}
		var message struct{ Body string }
		err = json.NewDecoder(resp.Body).Decode(&message)
		resp.Body.Close()
		if err != nil || message.Body != want {
			t.Errorf("got %q and %v, want %s", message.Body, err, want)
		}
	}
}
