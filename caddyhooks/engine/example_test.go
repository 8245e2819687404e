package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// Shouter is a runner that answers in capitals.
type Shouter struct{}

// Run carries out one turn. It returns early when ctx is done: the run has timed out, was cancelled, or the service stops.
func (Shouter) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	if turn.Isolated() {
		// This call mends an answer that did not fit its schema. An agent would use no history, tools or memory for it.
		return engine.Reply{}, errors.New("cannot repair answers")
	}
	var answer []string
	for _, word := range strings.Fields(turn.Message) {
		if ctx.Err() != nil {
			return engine.Reply{}, ctx.Err()
		}
		word = strings.ToUpper(word)
		if turn.Emit != nil {
			turn.Emit(engine.Progress{Text: word + " "}) // for those who follow the answer while it is made
		}
		answer = append(answer, word)
	}
	return engine.Reply{Text: strings.Join(answer, " ")}, nil
}

// A runner that cannot take a turn on now, and had no effects, returns an UnavailableError and is asked again later. Any
// other error ends the run, with a text for the operator's log.
func ExampleRunner() {
	e := engine.New(memory.New().Store())
	defer e.Stop()
	e.Attach(engine.Config{
		Runners:       map[string]engine.Runner{"shouter": Shouter{}},
		DefaultRunner: "shouter",
		Workers:       4,
		Log:           zap.NewNop(),
	})
	run := &engine.Run{ChatID: "chat", Hook: "agent", Action: engine.Agent, Message: "hello world", Sync: true, Timeout: time.Minute}
	outcome, err := e.Do(context.Background(), run, 0)
	fmt.Println(outcome.Status, outcome.Text, err)
	// Output: completed HELLO WORLD <nil>
}

// Notebook is a channel that writes answers to the pages of a notebook.
type Notebook struct{ pages chan string }

// ValidTo accepts the names of pages.
func (Notebook) ValidTo(to string) error {
	if !strings.HasPrefix(to, "page ") {
		return errors.New(`"to" is the name of a page, such as "page 1"`)
	}
	return nil
}

// Send makes one attempt. A delivery keeps its ID over all attempts, so that a receiver can tell when it has got it before.
func (n Notebook) Send(ctx context.Context, d *engine.Delivery) error {
	if len(d.Body) > 4000 {
		return &engine.FinalError{Err: errors.New("the answer is too long for a page")} // there is no use in another attempt
	}
	select {
	case n.pages <- d.To + ": " + d.Body:
		return nil
	case <-ctx.Done():
		return &engine.UnreachableError{Err: ctx.Err()} // other deliveries would fail as well
	}
}

// Besides FinalError and UnreachableError there is RetryLaterError, for services that ask for a pause. After any other
// error a delivery is tried again by a schedule. The texts of errors hold no secrets: whoever may look at the run sees them.
func ExampleChannel() {
	notebook := Notebook{make(chan string)}
	e := engine.New(memory.New().Store())
	defer e.Stop()
	e.Attach(engine.Config{
		Runners:       map[string]engine.Runner{"shouter": Shouter{}},
		DefaultRunner: "shouter",
		Channels:      map[string]engine.Channel{"notebook": notebook},
		Workers:       4,
		DrainTimeout:  time.Second,
		Log:           zap.NewNop(),
	})
	run := &engine.Run{ChatID: "chat", Hook: "agent", Action: engine.Agent, Message: "hello world", Timeout: time.Minute,
		Channel: "notebook", To: "page 1"}
	if err := e.Submit(context.Background(), run, 0); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-notebook.pages)
	// Output: page 1: HELLO WORLD
}

// A store of one's own has to keep many promises. The package storetest checks them: call storetest.Run in a test. A store
// whose data is in one process can be made of the parts in stores/local, as memory and bolt are.
func ExampleStore() {
	data := memory.New()
	here, there := data.Store(), data.Store() // two nodes that share the data
	run := &engine.Run{ChatID: "chat", Message: "hello", Timeout: time.Minute}
	if err := here.Runs().Add(context.Background(), run, engine.Terms{}); err != nil {
		fmt.Println(err)
	}
	claims, _, err := there.Runs().Claim(context.Background(), engine.Batch{Max: 1, Lease: time.Minute})
	if err != nil {
		fmt.Println(err)
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "hi", HasText: true}}
	if _, err := there.Runs().End(context.Background(), claims[0], end, engine.Batch{}); err != nil {
		fmt.Println(err)
	}
	record, err := here.Runs().Get(context.Background(), run.ID)
	fmt.Println(record.Status, record.Outcome.Text, err)
	// Output: completed hi <nil>
}
