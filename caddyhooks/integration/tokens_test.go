package integration

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// caddy hooks token list on one node tells when another one was last sent a token: after it has saved that, which it does once a minute,
// and when it ends.
func TestTheLastUseOfATokenIsSeenOnAllNodes(t *testing.T) {
	t.Parallel()
	const first, second = "first-token-1234567", "second-token-1234567"
	database := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	config := "hooks {\nenabled\nrunner echo\ntoken " + first + " " + second + "\nstore postgres \"" +
		database.TCP("postgres", pgtest.Password, "postgres") + "\"\n}"
	binary := hookstest.NewBinary(t)
	a, b := binary.Deploy(t, "", config).Start(t), binary.Deploy(t, "", config).Start(t)
	type token struct {
		Number     int
		ID         string
		LastUsedAt *time.Time
	}
	list := func(p *hookstest.Process) (tokens []token) {
		t.Helper()
		var out, errs bytes.Buffer
		cmd := p.Command(p.Env, "hooks", "token", "list", "--json", "--address", strings.TrimPrefix(p.Admin, "http://"))
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		var answer struct{ Tokens []token }
		if err != nil || json.Unmarshal(out.Bytes(), &answer) != nil || len(answer.Tokens) != 2 {
			t.Fatalf("caddy hooks token list: %v %s %s", err, &out, &errs)
		}
		if strings.Contains(out.String(), "token-1234567") {
			t.Errorf("it shows a token: %s", &out)
		}
		return answer.Tokens
	}
	use := func(p *hookstest.Process, token string) {
		t.Helper()
		resp, err := hookstest.TryRequest("POST", p.URL+"/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer "+token)
		if err != nil || resp.Status != 200 {
			t.Fatalf("got %d %s, %v", resp.Status, resp.Body, err)
		}
	}
	use(a, first)
	hookstest.Within(t, 2*time.Minute, "the other node knows", func() bool { return list(b)[0].LastUsedAt != nil })
	if list(b)[1].LastUsedAt != nil {
		t.Error("a token that nobody used was used")
	}
	use(a, second)
	a.Terminate(t)
	a.WantCleanExit(t)
	if tokens := list(b); tokens[0].LastUsedAt == nil || tokens[1].LastUsedAt == nil || tokens[0].ID == tokens[1].ID {
		t.Errorf("after the end of a node: %+v", tokens)
	}
	b.Terminate(t)
	b.WantCleanExit(t)
}
