package acpclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// patience is for a machine that is very busy.
const patience = 30 * time.Second

// agentSide is the agent's end of a connection.
type agentSide struct {
	in  *bufio.Scanner
	out io.WriteCloser
}

func connect(t *testing.T) (*Client, *agentSide) {
	t.Helper()
	toAgent, stdin := io.Pipe()
	stdout, fromAgent := io.Pipe()
	c := Connect(stdin, stdout, true)
	t.Cleanup(func() {
		c.Close(nil)
		fromAgent.Close()
		toAgent.Close()
	})
	return c, &agentSide{bufio.NewScanner(toAgent), fromAgent}
}

// answer reads a request and answers it. The lines before are written first.
func (a *agentSide) answer(t *testing.T, result string, before ...string) {
	t.Helper()
	if !a.in.Scan() {
		t.Errorf("no request: %v", a.in.Err())
		return
	}
	var request struct {
		ID json.RawMessage `json:"id"`
	}
	if err := json.Unmarshal(a.in.Bytes(), &request); err != nil {
		t.Error(err)
		return
	}
	for _, line := range append(before, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, request.ID, result)) {
		if _, err := fmt.Fprintln(a.out, line); err != nil {
			t.Error(err)
		}
	}
}

// heard are texts of updates.
type heard struct{ texts []string }

func (h *heard) Update(update Update, _ int) {
	h.texts = append(h.texts, update.Kind+" "+update.Text())
}

func (h *heard) Permission(request PermissionRequest) (string, func(context.Context) string) {
	h.texts = append(h.texts, "asks for "+request.ToolCall.Kind)
	if request.ToolCall.Kind == "later" {
		return "", func(context.Context) string { return request.Option("allow_once") }
	}
	return request.Option("allow_once"), nil
}

func TestUpdatesOfASessionComeInOrderBeforeTheEndOfItsTurn(t *testing.T) {
	t.Parallel()
	c, agent := connect(t)
	update := func(session, update string) string {
		return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + session + `","update":` + update + `}}`
	}
	go agent.answer(t, `"result":{"stopReason":"end_turn"}`,
		update("s", `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"one"}}`),
		"no message",
		update("other", `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"of another"}}`),
		update("s", `{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"x"}}`),
		update("s", `{"sessionUpdate":"something_new","content":[1,2]}`),
		update("s", `7`),
		`{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"kind":"read"},"options":[{"optionId":"yes","kind":"allow_once"}]}}`,
		`{"jsonrpc":"2.0","id":"f","method":"fs/read_text_file","params":{"path":"/etc/passwd"}}`,
	)
	h := new(heard)
	defer c.Listen("s", h)()
	end, err := c.Prompt(t.Context(), "s", "hello", "")
	if err != nil || end.StopReason != "end_turn" {
		t.Fatalf("got %q, %v", end.StopReason, err)
	}
	if got, want := strings.Join(h.texts, ", "), "agent_message_chunk one, agent_message_chunk , something_new , asks for read"; got != want {
		t.Errorf("heard %s\nwant  %s", got, want)
	}
	var answers []string
	for range 2 {
		if !agent.in.Scan() {
			t.Fatal("no answer")
		}
		answers = append(answers, agent.in.Text())
	}
	if all := strings.Join(answers, "\n"); !strings.Contains(all, `"optionId":"yes"`) || !strings.Contains(all, `-32601`) {
		t.Errorf("the agent got %s", all)
	}
}

// decider leaves the first request open until something else was heard.
type decider struct {
	heard
	asked  chan struct{}
	decide chan string
	ended  chan error // of the context, when the agent does not wait any more
}

func (d *decider) Permission(request PermissionRequest) (string, func(context.Context) string) {
	if request.ToolCall.Kind != "edit" {
		return request.Option("allow_once"), nil
	}
	close(d.asked)
	return "", func(ctx context.Context) string {
		select {
		case option := <-d.decide:
			return option
		case <-ctx.Done():
			d.ended <- ctx.Err()
			return ""
		}
	}
}

func permissionLine(id, kind string) string {
	return `{"jsonrpc":"2.0","id":"` + id + `","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"kind":"` + kind +
		`"},"options":[{"optionId":"yes","kind":"allow_once"}]}}`
}

func TestARequestThatWaitsForADecisionHoldsNothingUp(t *testing.T) {
	t.Parallel()
	c, agent := connect(t)
	d := &decider{asked: make(chan struct{}), decide: make(chan string), ended: make(chan error, 1)}
	defer c.Listen("s", d)()
	next := func(want string) {
		t.Helper()
		if !agent.in.Scan() || !strings.Contains(agent.in.Text(), want) {
			t.Fatalf("the agent got %q, want %s", agent.in.Text(), want)
		}
	}
	write := func(line string) {
		t.Helper()
		if _, err := fmt.Fprintln(agent.out, line); err != nil {
			t.Fatal(err)
		}
	}
	write(permissionLine("first", "edit"))
	<-d.asked
	for range 2 * maxUnhandled {
		write(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"x"}}}`)
	}
	write(permissionLine("second", "read"))
	next(`"id":"second"`)
	d.decide <- "yes"
	next(`"id":"first"`)

	d.asked = make(chan struct{})
	write(permissionLine("third", "edit"))
	<-d.asked
	agent.out.Close()
	select {
	case err := <-d.ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the context ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the request of an agent that is gone still waits")
	}
}

func TestErrorsOfTheAgentAreTold(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{
		`"error":{"code":-32603,"message":"Internal error","data":{"details":"no key"}}`: "Internal error: no key (code -32603)",
		`"error":{"code":400,"message":"Bad","data":"too long"}`:                         "Bad: too long (code 400)",
		`"error":{"code":1,"message":"Bad","data":[1]}`:                                  "Bad (code 1)",
		`"result":{"stopReason":7}`:                                                      "not as it should be",
	} {
		c, agent := connect(t)
		go agent.answer(t, result)
		if _, err := c.Prompt(t.Context(), "s", "hello", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is %v", result, err)
		}
	}
}

func TestAgentThatHangsUpEndsItsRequests(t *testing.T) {
	t.Parallel()
	c, agent := connect(t)
	go func() {
		agent.in.Scan()
		agent.out.Close()
	}()
	if _, err := c.Prompt(t.Context(), "s", "hello", ""); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestAgentThatReadsNothingHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	c, _ := connect(t)
	var err error
	for range maxOutbox>>20 + 1 {
		_, err = c.out.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, errOutbox) {
		t.Errorf("too much is %v", err)
	}
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Fatal("the connection is still open")
	}
	if !errors.Is(c.Err(), errOutbox) {
		t.Errorf("closed because of %v", c.Err())
	}
	if _, err := c.Prompt(t.Context(), "s", "hello", ""); !errors.Is(err, errOutbox) {
		t.Errorf("then a prompt is %v", err)
	}
}

func TestAgentThatWritesWithoutEndIsLeft(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		line string
		want error
	}{
		"garbage":      {strings.Repeat("x", 1000) + "\n", errGarbage},
		"a line":       {strings.Repeat("x", 1<<20), errLine},
		"blank lines":  {strings.Repeat("\n", 1000), errGarbage},
		"real updates": {`{"jsonrpc":"2.0","method":"session/update","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}` + "\n", errFlood},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, agent := connect(t)
			c.in.mu.Lock()
			c.in.since = maxAllowance - 4<<20 // most of it has been used
			c.in.mu.Unlock()
			go func() {
				for {
					if _, err := io.WriteString(agent.out, test.line); err != nil {
						return
					}
					select {
					case <-c.Done():
						agent.out.Close()
						return
					default:
					}
				}
			}()
			select {
			case <-c.Done():
				if !errors.Is(c.Err(), test.want) {
					t.Errorf("left because of %v", c.Err())
				}
			case <-time.After(patience):
				t.Error("it goes on")
			}
		})
	}
}

// A line that the SDK deals with in another way than lineReader expects would keep its place for ever.
func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":null,"method":"x"}` + "\n" + `{"id":1,"method":""}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":{},"method":"session/request_permission","params":{}}`))
	f.Add([]byte(`{"ID":1,"Method":"x","METHOD":"y"}`))
	f.Add([]byte(permissionLine("a", "later") + "\n" + permissionLine("b", "read")))
	f.Add([]byte(`{"method":"$/cancel_request","params":{"requestId":1}}` + "\n\n" + `{"error":"x","method":"y"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		stdout, fromAgent := io.Pipe()
		toAgent, stdin := io.Pipe()
		go func() { _, _ = io.Copy(io.Discard, toAgent) }()
		c := Connect(stdin, stdout, len(data)%2 == 0)
		defer c.Close(nil)
		defer c.Listen("s", new(heard))()
		go func() {
			_, _ = fromAgent.Write(data)
			_, _ = io.WriteString(fromAgent, "\n")
			fromAgent.Close()
		}()
		select {
		case <-c.Done():
		case <-time.After(patience):
			t.Fatal("the end was not reached")
		}
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			c.in.mu.Lock()
			pending := c.in.pending
			c.in.mu.Unlock()
			if pending == 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d messages were never handled", pending)
			}
		}
	})
}
