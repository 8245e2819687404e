package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// oneAnswerOfMany has many people answer the same question at once, on both nodes.
func oneAnswerOfMany(s, other *store) {
	const people = 16
	t := s.t
	for round := range 5 {
		run := s.addTo(fmt.Sprint("chat ", round))[0]
		var id string
		if round%2 == 0 {
			id = s.putAside(run, fullQuestion(0), 0).ID()
		} else {
			id = engine.QuestionID(run.ID, 0) // before it is asked
		}
		var mu sync.Mutex
		var counted []string
		told := map[string]int{}
		var all sync.WaitGroup
		for i := range people {
			all.Go(func() {
				node := []*store{s, other}[i%2]
				mine := engine.Answer{Text: fmt.Sprint("answer ", i), Via: engine.AnsweredByPage}
				d := newDelivery(run, i)
				question, err := node.Questions().Answer(t.Context(), id, mine, d)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					counted = append(counted, mine.Text)
				case !errors.Is(err, engine.ErrAnswered):
					t.Errorf("answering: %v", err)
					return
				}
				told[question.Answer.Text]++
			})
		}
		all.Wait()
		if len(counted) != 1 || told[counted[0]] != people {
			t.Fatalf("these answers count: %v, and these are told: %v", counted, told)
		}
		if got := other.question(id); got.Answer == nil || got.Answer.Text != counted[0] {
			t.Errorf("the question has the answer %+v, want %s", got.Answer, counted[0])
		}
		due, _ := other.due(2 * people)
		if len(due) != 1 {
			t.Errorf("%d deliveries were stored with the answer, want 1", len(due))
		}
		claim := other.claimFirst(run)
		if len(claim.Questions) != 1 || claim.Questions[0].Answer.Text != counted[0] {
			t.Errorf("the claim has %+v", claim.Questions)
		}
		s.claimAll()
		other.end(claim, ended())
	}
}

// seenWithItsQuestion looks at runs while they are put aside.
func seenWithItsQuestion(_ *testing.T, s *store) {
	for round := range 20 {
		run := s.addTo(fmt.Sprint("chat ", round))[0]
		claim := s.claimFirst(run)
		var all sync.WaitGroup
		all.Go(func() { s.end(claim, aside(fullQuestion(0), 0)) })
		for {
			record := s.get(run.ID)
			if record.Status == engine.Waiting {
				if len(record.Questions) != 1 {
					s.t.Errorf("a run that is put aside has %d questions", len(record.Questions))
				}
				break
			}
		}
		all.Wait()
	}
}

func hearOfAnswers(s, watcher *store) {
	t := s.t
	word := watcher.Watch().Claimable()
	run := s.addTo("a")[0]
	question := s.putAside(run, fullQuestion(0), 0)
	hears(t, word, "an answer made a run due", func() { s.answer(question) })
	claim := watcher.claimAsked(run, question)
	if err := watcher.Questions().Ask(t.Context(), claim, fullQuestion(1)); err != nil {
		t.Fatal(err)
	}
	question = s.question(engine.QuestionID(run.ID, 1))
	hears(t, word, "a question of a run was answered that is carried out", func() { s.answer(question) })
	due := watcher.Watch().Due()
	d := newDelivery(run, 0)
	hears(t, due, "a run was put aside with a delivery", func() { watcher.end(claim, aside(agentQuestion(2), 0, d)) })
	question = s.question(engine.QuestionID(run.ID, 2))
	hears(t, due, "a question was answered with a delivery", func() { s.answer(question, newDelivery(run, 1)) })
	claim = s.claimFirst(run)
	hears(t, due, "a question was asked with a delivery", func() {
		if err := s.Questions().Ask(t.Context(), claim, fullQuestion(3), newDelivery(run, 2)); err != nil {
			t.Fatal(err)
		}
	})
	s.end(claim, ended())
}

func hearOfEndsAside(s, watcher *store) {
	run := s.addTo("a")[0]
	ended, stop := watcher.Watch().Ended(run.ID)
	defer stop()
	question := s.putAside(run, fullQuestion(0), 0)
	silent(s.t, ended, "the run was put aside")
	s.answer(question)
	s.end(s.claimAsked(run, question), aside(agentQuestion(1), 0))
	silent(s.t, ended, "the run was put aside again")
	s.endQueued(run, endedAs(engine.Cancelled, ""))
	hear(s.t, ended, "a run ended that was put aside")
}

// answerSheet notes which answers count, as those who gave them were told.
type answerSheet struct {
	mu      sync.Mutex
	asked   []string            // ids of questions
	counted map[string][]string // texts, by id
	ended   map[string]bool     // runs
}

func (a *answerSheet) ask(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, id)
}

// some returns a question that was asked, or is about to be.
func (a *answerSheet) some(chance *rand.Rand) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.asked) == 0 {
		return ""
	}
	return a.asked[chance.IntN(len(a.asked))]
}

func (a *answerSheet) count(id, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted[id] = append(a.counted[id], text)
}

func (a *answerSheet) end(runID string) (all int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if runID != "" {
		a.ended[runID] = true
	}
	return len(a.ended)
}

// answerAtRandom has runs ask several questions each, which many answer at once, on all nodes, while some claims are lost.
func answerAtRandom(s *store, others ...*store) {
	const runs, chats, questions, workers, people = 60, 12, 3, 4, 4
	t := s.t
	nodes := append([]*store{s}, others...)
	sheet := &answerSheet{counted: map[string][]string{}, ended: map[string]bool{}}
	all := s.addTo(manyChats(runs, chats)...)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	fail := func(doing string, err error) {
		if err != nil && !isClaimLost(err) && !errors.Is(err, engine.ErrAnswered) && !errors.Is(err, engine.ErrNotFound) && ctx.Err() == nil {
			t.Errorf("%s: %v", doing, err)
			cancel()
		}
	}
	var busy sync.WaitGroup
	for i := range workers {
		node, chance := nodes[i%len(nodes)], random(300+i)
		busy.Go(func() {
			for sheet.end("") < runs && ctx.Err() == nil {
				lease := longLease
				if chance.IntN(8) == 0 {
					lease = time.Millisecond // it is lost, or just not
				}
				claims, _, err := node.Runs().Claim(ctx, engine.Batch{Max: 2, Lease: lease})
				fail("claiming", err)
				for _, claim := range claims {
					asked := len(claim.Questions)
					if asked > 0 && claim.Questions[asked-1].AskedAt.IsZero() {
						asked--
					}
					if asked > 0 && claim.Questions[asked-1].Answer == nil {
						t.Errorf("run %s was handed out although question %d has no answer", claim.Run.ID, asked-1)
					}
					if asked == questions {
						if _, err = node.Runs().End(ctx, claim, ended(), engine.Batch{}); err == nil {
							sheet.end(claim.Run.ID)
						}
						fail("ending", err)
						continue
					}
					sheet.ask(engine.QuestionID(claim.Run.ID, asked))
					_, err = node.Runs().End(ctx, claim, aside(agentQuestion(asked), 0), engine.Batch{})
					fail("putting aside", err)
				}
				if len(claims) == 0 {
					select {
					case <-node.Watch().Claimable():
					case <-time.After(5 * time.Millisecond):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	for i := range people {
		node, chance := nodes[i%len(nodes)], random(400+i)
		busy.Go(func() {
			for n := 0; sheet.end("") < runs && ctx.Err() == nil; n++ {
				id := sheet.some(chance)
				text := fmt.Sprintf("answer %d of person %d", n, i)
				_, err := node.Questions().Answer(ctx, id, engine.Answer{Text: text, Via: engine.AnsweredByLink})
				if err == nil {
					sheet.count(id, text)
					continue
				}
				fail("answering", err)
				time.Sleep(time.Millisecond) // others have something to do
			}
		})
	}
	busy.Wait()
	if n := sheet.end(""); n != runs {
		t.Fatalf("%d of %d runs have ended, and it took too long or failed", n, runs)
	}
	for _, run := range all {
		record := s.get(run.ID)
		if record.Status != engine.Completed || len(record.Questions) != questions {
			t.Errorf("run %s is %s with %d questions", run.ID, record.Status, len(record.Questions))
		}
		for _, question := range record.Questions {
			if counted := sheet.counted[question.ID()]; len(counted) != 1 || question.Answer == nil || question.Answer.Text != counted[0] {
				t.Errorf("question %s has the answer %+v, and these count: %q", question.ID(), question.Answer, counted)
			}
		}
	}
	s.opens()
	s.backlogIs(engine.Backlog{})
}

// manyChats are the chats of so many runs.
func manyChats(runs, chats int) (all []string) {
	for i := range runs {
		all = append(all, fmt.Sprint("chat ", i%chats))
	}
	return all
}

func questionsAtRandom(_ *testing.T, s *store) { answerAtRandom(s) }
