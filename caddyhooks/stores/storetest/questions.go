package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var questionChecks = append(alone(questionPairs), []check{
	{"a run that is put aside waits at the head of its chat", putAsideAtTheHead},
	{"a question is kept as it was asked", questionAsItWas},
	{"an answer makes the run due, once", answerMakesDue},
	{"the run is handed out when the time of its question is over", questionTimeIsOver},
	{"a pause hands the run out, and the question goes on", pauseHandsOut},
	{"a question without an end stays open", openForEver},
	{"Resume does not end the wait for an answer", resumeLeavesAside},
	{"a run that was put aside is not overdue", asideIsNotOverdue},
	{"a run that has a question is not overdue", askedIsNotOverdue},
	{"limits and counts leave runs out that are put aside", asideIsNotQueued},
	{"an answer can come before the question", answerComesFirst},
	{"an answer that came first can be followed by its question at once", answeredWhenAsked},
	{"whoever sees that a run is put aside sees the question", seenWithItsQuestion},
	{"only the next question can be answered before it is asked", onlyTheNextQuestion},
	{"numbers of questions have no gaps", numbersWithoutGaps},
	{"a run has many questions, one after the other", manyQuestions},
	{"the end of a run that is put aside closes its question", endWhilePutAside},
	{"the end of a claimed run closes its questions", endClosesQuestions},
	{"an end that put a run aside can be repeated", repeatedPutAside},
	{"a claim that was lost puts nothing aside and asks nothing", lostClaimAsksNothing},
	{"a question can be asked while the run goes on", askedMeanwhile},
	{"questions stay when the run is put back, or its lease is over", questionsOfStartedRuns},
	{"deliveries of an unfinished run are sent, and stay", deliveriesOfUnfinished},
	{"a list has the open questions for people, the newest first", openQuestionsInOrder},
	{"questions are forgotten with their run", questionsArePruned},
	{"nobody carries out a run that is put aside", asideIsNotCancelled},
	{"no question is answered twice, and none is lost", questionsAtRandom},
}...)

// questionPairs are properties of what one node sees of the answers of another.
var questionPairs = []pairCheck{
	{"of many answers at once exactly one counts", oneAnswerOfMany},
	{"word comes of an answer", hearOfAnswers},
	{"word comes of the end of a run that is put aside", hearOfEndsAside},
}

var questionNodeChecks = append(inPairs(questionPairs), []check{
	{"a run that one node puts aside is carried on by another", carriedOnElsewhere},
	{"no question is answered twice over three nodes, and none is lost", func(_ *testing.T, a *store) { answerAtRandom(a, a.join(), a.join()) }},
}...)

var durableQuestionChecks = []check{
	{"runs that are put aside stay so, with their questions and their time", asideIsThereAgain},
	{"answers are there again", answersAreThereAgain},
	{"an early answer is there again", earlyAnswerIsThereAgain},
	{"deliveries of unfinished runs are there again", unfinishedDeliveriesAreThereAgain},
	{"a run that was put aside is not overdue later", asideIsNotOverdueLater},
	{"open questions are listed again, and those that were closed are not", openQuestionsAreThereAgain},
	{"a question that is asked again keeps its time", askedAgainKeepsItsTimeLater},
}

var setClockQuestionChecks = []check{
	{"no clock ends a wait for an answer, or puts it off", setClockAndQuestions},
	{"no clock moves the time of a question that is asked again", setClockAndAskedAgain},
}

var durableSetClockQuestionChecks = []check{
	{"a clock that is set back between two processes gives a question its time again, and no more", setClockBetweenQuestions},
}

// fullQuestion is a question in which every field is set, but for its answer. AskedAt and Until are wrong: the store has to set them.
func fullQuestion(number int) *engine.Question {
	return &engine.Question{
		RunID: "not the store's", Number: number, Kind: engine.AskDeliver, Text: "may \xff this\x00 be sent ✓?", Choices: []string{"yes", "", "no \x00"},
		Channel: "ops", To: "-100123", By: []string{"U012", "ü"}, For: time.Hour, Else: "no \x00",
		State: []byte("{\x00\xff}"), AskedAt: time.Now().Add(-1000 * time.Hour), Until: time.Now().Add(1000 * time.Hour),
		Answer: &engine.Answer{Text: "not one that counts"},
	}
}

// agentQuestion is one that stays open until the agent answers it.
func agentQuestion(number int) *engine.Question {
	return &engine.Question{Number: number, Kind: engine.AskAgent, State: []byte("a turn")}
}

// aside is the end of a claim on a run that is put aside.
func aside(question *engine.Question, pause time.Duration, deliveries ...*engine.Delivery) engine.End {
	return engine.End{Requeue: true, WaitingFor: "Somebody has to answer.", Question: question, Pause: pause, Deliveries: deliveries}
}

// putAside puts a run aside, and returns its question as it is expected from then on.
func (s *store) putAside(run *engine.Run, question *engine.Question, pause time.Duration) *engine.Question {
	s.t.Helper()
	s.end(s.claimFirst(run), aside(question, pause))
	s.status(run, engine.Waiting, 0)
	return s.justAsked(run, question)
}

// justAsked is a new question of a run as it is expected.
func (s *store) justAsked(run *engine.Run, question *engine.Question) *engine.Question {
	s.t.Helper()
	want := *question
	want.RunID, want.Answer, want.Until = run.ID, nil, time.Time{}
	want.AskedAt = s.question(want.ID()).AskedAt
	s.isNow("AskedAt", want.AskedAt)
	if want.For > 0 {
		want.Until = want.AskedAt.Add(want.For)
	}
	s.isQuestion(&want)
	return &want
}

func (s *store) question(id string) *engine.Question {
	s.t.Helper()
	question, err := s.Questions().Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatalf("getting question %s: %v", id, err)
	}
	return question
}

// isQuestion expects a question, by itself and with its run.
func (s *store) isQuestion(want *engine.Question) {
	s.t.Helper()
	same(s.t, "the question", s.question(want.ID()), want)
	all := s.get(want.RunID).Questions
	if want.Number >= len(all) {
		s.t.Fatalf("the run has %d questions, and none with number %d", len(all), want.Number)
	}
	same(s.t, "the question of the run", all[want.Number], want)
}

// noQuestion expects that a question is not known, and cannot be answered.
func (s *store) noQuestion(id string) {
	s.t.Helper()
	if got, err := s.Questions().Get(s.t.Context(), id); !errors.Is(err, engine.ErrNotFound) {
		s.t.Errorf("getting question %.80q: got %+v and %v, want ErrNotFound", id, got, err)
	}
	if got, err := s.Questions().Answer(s.t.Context(), id, engine.Answer{Text: "yes"}); !errors.Is(err, engine.ErrNotFound) {
		s.t.Errorf("answering question %.80q: got %+v and %v, want ErrNotFound", id, got, err)
	}
}

// fullAnswer is an answer in which every field is set. At is wrong: the store has to set it.
func fullAnswer() engine.Answer {
	return engine.Answer{Text: "yes \x00\xff", Error: "no \xff", By: "ü", Via: engine.AnsweredByLink, Usage: []byte("{\x00\xff"), At: time.Now().Add(-1000 * time.Hour)}
}

// answer answers a question, which is then as the store returns it.
func (s *store) answer(question *engine.Question, deliveries ...*engine.Delivery) {
	s.t.Helper()
	want := fullAnswer()
	got, err := s.Questions().Answer(s.t.Context(), question.ID(), want, deliveries...)
	if err != nil {
		s.t.Fatalf("answering question %s: %v", question.ID(), err)
	}
	s.isNow("the time of an answer", got.Answer.At)
	want.At = got.Answer.At
	question.Answer = &want
	same(s.t, "the answered question", got, question)
	s.isQuestion(question)
}

// isAnswered expects that a question cannot be answered any more.
func (s *store) isAnswered(want *engine.Question) {
	s.t.Helper()
	late := engine.Answer{Text: "too late", Via: engine.AnsweredByAPI}
	got, err := s.Questions().Answer(s.t.Context(), want.ID(), late, newDelivery(&engine.Run{ID: want.RunID}, 7))
	if !errors.Is(err, engine.ErrAnswered) {
		s.t.Fatalf("answering a question again: got %v, want ErrAnswered", err)
	}
	same(s.t, "the question that has an answer", got, want)
	s.isQuestion(want)
}

// claimAsked claims a run, and expects it to have these questions.
func (s *store) claimAsked(run *engine.Run, want ...*engine.Question) *engine.Claim {
	s.t.Helper()
	claim := s.starts(run, 1)
	same(s.t, "the questions of the claim", claim.Questions, want)
	return claim
}

func putAsideAtTheHead(t *testing.T, s *store) {
	runs := s.addTo("a", "a", "b")
	question := fullQuestion(0)
	s.sameRuns("claimed", s.endAnd(s.claimFirst(runs[0]), aside(question, 0), upTo(10)), runs[2])
	question = s.justAsked(runs[0], question)
	record := s.get(runs[0].ID)
	if record.Status != engine.Waiting || record.WaitingFor != "Somebody has to answer." || !record.StartedAt.IsZero() || record.Attempts != 0 {
		t.Errorf("the run is %+v", record)
	}
	s.unfinished(runs[0].ID, true)
	s.claimAll()
	s.lists(engine.Query{Statuses: []engine.Status{engine.Waiting}}, runs[0])
	s.lists(engine.Query{Statuses: []engine.Status{engine.Waiting, engine.Running}}, runs[0], runs[2])
	s.lists(engine.Query{Statuses: []engine.Status{engine.Queued}, ChatID: "a"}, runs[1])
	s.lists(engine.Query{Statuses: []engine.Status{engine.Waiting}, Hooks: []string{"agent"}, OldestFirst: true}, runs[0])
	s.lists(engine.Query{}, runs...)
	for _, listed := range s.list(engine.Query{Input: true, Replies: true, Deliveries: true}) {
		if len(listed.Questions) > 0 {
			t.Error("a list has questions of runs")
		}
	}
	s.answer(question)
	s.status(runs[0], engine.Queued, 0)
	s.lists(engine.Query{Statuses: []engine.Status{engine.Waiting}})
	s.end(s.claimAsked(runs[0], question), ended())
	s.claimThrough(runs[1])
}

func questionAsItWas(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	question := fullQuestion(0)
	allSet(t, fullQuestion(1))
	question.State = slices.Repeat([]byte("a long state \x00\xff"), 200_000)
	given := *question
	s.putAside(run, question, 0)
	same(t, "the caller's question", question, &given)

	plain := s.addTo("b")[0]
	bare := s.putAside(plain, &engine.Question{Kind: engine.AskInput}, 0)
	s.answer(bare)
	s.claimAsked(plain, bare)
}

func answerMakesDue(_ *testing.T, s *store) {
	runs := s.addTo("a", "a")
	question := s.putAside(runs[0], fullQuestion(0), time.Minute)
	s.answer(question)
	s.isAnswered(question)
	claim := s.claimAsked(runs[0], question)
	s.claimAll()
	s.isAnswered(question)
	s.end(claim, ended())
	question.State = nil
	s.isAnswered(question)
	s.status(runs[0], engine.Completed, 1)
	s.noneDue() // the deliveries of answers that did not count were not stored
	s.claimThrough(runs[1])
}

// claimWait claims nothing, and expects to be told for how long there is nothing.
func (s *store) claimWait(want time.Duration) {
	s.t.Helper()
	claims, wait, err := s.Runs().Claim(s.t.Context(), upTo(10))
	if err != nil || len(claims) > 0 {
		s.t.Fatalf("claimed %d runs: %v", len(claims), err)
	}
	s.isWait("until a run is due", wait, want)
}

func questionTimeIsOver(_ *testing.T, s *store) {
	runs := s.addTo("a", "a")
	question := s.putAside(runs[0], fullQuestion(0), 0)
	s.claimWait(time.Hour)
	s.advance(time.Hour - time.Minute)
	s.claimWait(time.Minute)
	s.advance(time.Minute + slack)
	claim := s.claimAsked(runs[0], question)
	s.answer(question) // nobody has done so
	s.end(claim, ended())
	s.claimThrough(runs[1])
}

func pauseHandsOut(_ *testing.T, s *store) {
	runs := s.addTo("a", "a")
	question := s.putAside(runs[0], fullQuestion(0), 10*time.Minute)
	s.claimWait(10 * time.Minute)
	s.advance(10*time.Minute + slack)
	claim := s.claimAsked(runs[0], question)

	again := fullQuestion(0) // with a new state, and its time goes on
	again.Text, again.State, again.Kind = "other", []byte("another state"), engine.AskInput
	s.end(claim, aside(again, 2*time.Hour))
	s.status(runs[0], engine.Waiting, 0)
	question.Text, question.State, question.Kind = again.Text, again.State, again.Kind
	s.isQuestion(question)
	s.claimWait(50*time.Minute - slack)
	s.opens(question)
	s.advance(50 * time.Minute)
	claim = s.claimAsked(runs[0], question)

	// It may be answered meanwhile. Then the run is not put aside again.
	s.answer(question)
	claims := s.endAnd(claim, aside(again, time.Hour), upTo(10))
	s.sameRuns("claimed", claims, runs[0])
	s.isQuestion(question)
	s.opens()
	s.end(claims[0], ended())
	s.claimThrough(runs[1])
}

func openForEver(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	question := s.putAside(run, agentQuestion(0), 0)
	s.advance(20 * year)
	claims, wait, err := s.Runs().Claim(t.Context(), upTo(10))
	if err != nil || len(claims) > 0 || wait >= 0 && wait < 20*year {
		t.Fatalf("claimed %d runs, and more are due in %v: %v", len(claims), wait, err)
	}
	s.status(run, engine.Waiting, 0)
	s.answer(question)
	s.claimAsked(run, question)
}

func resumeLeavesAside(_ *testing.T, s *store) {
	run := s.addFor("one")
	question := s.putAside(run, agentQuestion(0), 0)
	s.resume()
	s.resume("one")
	s.claimAll()
	s.status(run, engine.Waiting, 0)
	s.answer(question)
	s.claimAsked(run, question)
}

func asideIsNotOverdue(_ *testing.T, s *store) {
	run := s.addWithQueueTime(time.Hour)
	behind := s.addWithQueueTime(10 * time.Hour)
	question := s.putAside(run, fullQuestion(0), 0)
	s.advance(2 * time.Hour)
	s.overdue(8 * time.Hour)
	s.end(s.claimAsked(run, question), aside(agentQuestion(1), 0))
	question = s.question(engine.QuestionID(run.ID, 1))
	s.overdue(8 * time.Hour)
	s.answer(question)
	s.overdue(8 * time.Hour) // nor when it is queued again
	s.end(s.claimFirst(run), waitFor(time.Minute))
	s.overdue(8 * time.Hour) // nor when its runner does not take it on any more
	s.advance(8 * time.Hour)
	s.overdue(0, behind)
}

func askedIsNotOverdue(t *testing.T, s *store) {
	asks, answered := s.addWithQueueTime(time.Hour), s.addWithQueueTime(time.Hour)
	claim := s.claimFirst(asks)
	if err := s.Questions().Ask(t.Context(), claim, fullQuestion(0)); err != nil {
		t.Fatal(err)
	}
	s.answer(&engine.Question{RunID: answered.ID})
	s.end(claim, waitFor(3*time.Hour))
	s.advance(2 * time.Hour)
	s.overdue(-1)
}

func asideIsNotQueued(t *testing.T, s *store) {
	limits := engine.Limits{Queue: 2, Chat: 1}
	first := newRun("a")
	s.addWithin(limits, first)
	question := s.putAside(first, agentQuestion(0), 0)
	s.advance(time.Hour)
	s.backlogIs(engine.Backlog{Waiting: 1})
	second := newRun("a")
	s.addWithin(limits, second)
	s.refuse(newRun("a"), limits, engine.ErrChatFull)
	s.advance(time.Hour)
	third := newRun("b")
	s.addWithin(limits, third)
	s.refuse(newRun("c"), limits, engine.ErrQueueFull)
	s.backlogIs(engine.Backlog{Queued: 2, Waiting: 1, Oldest: time.Hour})
	s.answer(question)
	s.backlogIs(engine.Backlog{Queued: 3, Oldest: 2 * time.Hour})
	if queued, err := s.Runs().Queued(t.Context()); err != nil || queued != 3 {
		t.Errorf("%d runs are queued, want 3: %v", queued, err)
	}
	claims := s.claimAll(first, third)
	s.backlogIs(engine.Backlog{Queued: 1, Running: 2, Oldest: time.Hour})
	for _, claim := range claims {
		if claim.Run.ID == first.ID {
			s.end(claim, aside(fullQuestion(1), 0))
		} else {
			s.end(claim, ended())
		}
	}
	s.backlogIs(engine.Backlog{Queued: 1, Waiting: 1, Oldest: time.Hour})
	s.chats(engine.ChatQuery{})
	s.endQueued(first, ended())
	s.backlogIs(engine.Backlog{Queued: 1, Oldest: time.Hour})
	s.claimThrough(second)
	s.backlogIs(engine.Backlog{})
}

func answerComesFirst(t *testing.T, s *store) {
	runs := s.addTo("a", "a")
	early := &engine.Question{RunID: runs[0].ID}
	s.answer(early) // while the run is queued, for example since the process was killed
	s.opens()
	s.isAnswered(early)
	s.status(runs[0], engine.Queued, 0)
	claim := s.claimAsked(runs[0], early)
	asked := fullQuestion(0)
	claims := s.endAnd(claim, aside(asked, time.Hour), upTo(10))
	s.sameRuns("claimed", claims, runs[0])
	want := *asked
	want.RunID, want.Answer = runs[0].ID, early.Answer
	want.AskedAt = s.question(want.ID()).AskedAt
	s.isNow("AskedAt", want.AskedAt)
	want.Until = want.AskedAt.Add(want.For)
	s.isQuestion(&want)
	same(t, "the questions of the claim", claims[0].Questions, []*engine.Question{&want})
	s.opens()
	s.isAnswered(&want)
	s.end(claims[0], ended())
	s.claimThrough(runs[1])
}

func answeredWhenAsked(_ *testing.T, s *store) {
	runs := s.addTo("a", "a")
	first := s.putAside(runs[0], agentQuestion(0), 0)
	s.answer(first)
	claim := s.claimAsked(runs[0], first)
	s.answer(&engine.Question{RunID: runs[0].ID, Number: 1}) // while the run is carried out
	s.holds(longLease, claim)
	s.end(claim, aside(agentQuestion(1), 0))
	s.status(runs[0], engine.Queued, 0)
	claim = s.starts(runs[0], 1)
	if len(claim.Questions) != 2 || claim.Questions[1].Answer == nil || claim.Questions[1].Kind != engine.AskAgent {
		s.t.Errorf("the claim has the questions %+v", claim.Questions)
	}
	s.end(claim, ended())
	s.claimThrough(runs[1])
}

func onlyTheNextQuestion(_ *testing.T, s *store) {
	s.noQuestion("")
	s.noQuestion("no id")
	s.noQuestion(engine.QuestionID("01890a5d-ac96-774b-bcce-b302099a8057", 0))
	runs := s.addTo("a", "b")
	s.noQuestion(engine.QuestionID(runs[0].ID, 1))
	s.noQuestion(engine.QuestionID(runs[0].ID, 0) + "0")
	early := &engine.Question{RunID: runs[0].ID}
	s.answer(early)
	s.noQuestion(engine.QuestionID(runs[0].ID, 1)) // the first was not asked yet
	s.end(s.claimFirst(runs[0]), aside(fullQuestion(0), 0))
	s.noQuestion(engine.QuestionID(runs[0].ID, 2))
	s.answer(&engine.Question{RunID: runs[0].ID, Number: 1})
	s.noQuestion(engine.QuestionID(runs[0].ID, 2))
	s.endQueued(runs[0], ended())
	s.noQuestion(engine.QuestionID(runs[0].ID, 2))
	s.endQueued(runs[1], ended())
	s.noQuestion(engine.QuestionID(runs[1].ID, 0))
}

func numbersWithoutGaps(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	claim := s.claimFirst(run)
	for _, number := range []int{1, 7, engine.MaxQuestions} {
		if next, err := s.Runs().End(t.Context(), claim, aside(fullQuestion(number), 0, newDelivery(run, 0)), upTo(1)); err == nil || len(next) > 0 {
			t.Errorf("the first question has number %d: got %d runs and %v", number, len(next), err)
		}
		if err := s.Questions().Ask(t.Context(), claim, fullQuestion(number), newDelivery(run, 0)); err == nil {
			t.Errorf("the first question has number %d", number)
		}
	}
	s.status(run, engine.Running, 1)
	s.holds(longLease, claim)
	s.noneDue()
	s.opens()
	if got := s.get(run.ID).Questions; len(got) > 0 {
		t.Errorf("the run has %d questions", len(got))
	}
	s.end(claim, ended())
}

func manyQuestions(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	claim := s.claimFirst(run)
	var all []*engine.Question
	for number := range engine.MaxQuestions {
		kind := []engine.QuestionKind{engine.AskAgent, engine.AskStart, engine.AskInput}[number%3]
		question := &engine.Question{Number: number, Kind: kind, Text: fmt.Sprint("question ", number)}
		s.end(claim, aside(question, 0))
		question = s.justAsked(run, question)
		s.answer(question)
		all = append(all, question)
		claim = s.claimAsked(run, all...)
	}
	s.noQuestion(engine.QuestionID(run.ID, engine.MaxQuestions-1) + "0")
	if err := s.Questions().Ask(t.Context(), claim, fullQuestion(engine.MaxQuestions)); err == nil {
		t.Errorf("the run has more than %d questions", engine.MaxQuestions)
	}
	s.end(claim, ended())
	for _, question := range all {
		s.isAnswered(question)
	}
}

// isClosed expects that the end of its run has answered a question.
func (s *store) isClosed(question *engine.Question) {
	s.t.Helper()
	closed := *question
	closed.State, closed.Answer = nil, &engine.Answer{Via: engine.AnsweredByEnd, At: s.get(question.RunID).FinishedAt}
	s.isAnswered(&closed)
	s.noneDue()
}

func endWhilePutAside(_ *testing.T, s *store) {
	runs := s.addTo("a", "a")
	question := s.putAside(runs[0], fullQuestion(0), 0)
	s.endQueued(runs[0], endedAs(engine.Cancelled, ""))
	s.status(runs[0], engine.Cancelled, 0)
	s.isClosed(question)
	s.opens()
	s.endsNothing(queued(runs[0]), ended())
	s.advance(2 * time.Hour)
	s.claimThrough(runs[1])
}

func endClosesQuestions(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	first := s.putAside(run, agentQuestion(0), 0)
	s.answer(first)
	claim := s.claimAsked(run, first)
	second := fullQuestion(1)
	if err := s.Questions().Ask(t.Context(), claim, second); err != nil {
		t.Fatal(err)
	}
	second = s.justAsked(run, second)
	s.opens(second)
	s.end(claim, ended())
	s.opens()
	first.State = nil
	s.isAnswered(first)
	s.isClosed(second)
}

func repeatedPutAside(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	claim := s.claimFirst(run)
	s.end(claim, aside(fullQuestion(0), 0))
	question := s.justAsked(run, fullQuestion(0))
	s.advance(time.Minute)
	other := fullQuestion(0)
	other.Text, other.For = "another one", time.Second
	for range 2 {
		if next, err := s.Runs().End(t.Context(), claim, aside(other, 0, newDelivery(run, 0)), upTo(10)); err != nil || len(next) > 0 {
			t.Fatalf("repeating an end: got %d runs and %v", len(next), err)
		}
	}
	s.status(run, engine.Waiting, 0)
	s.isQuestion(question)
	s.noneDue()
	s.advance(time.Hour - 2*time.Minute)
	s.claimAll()
	s.advance(time.Minute + slack)
	s.claimAsked(run, question)
	s.endsNothing(claim, aside(other, 0))
}

func lostClaimAsksNothing(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	old := s.abandon(run)
	claim := s.reclaim(run)
	for _, lost := range append(forged(run, claim.Token), old, queued(run)) {
		s.endsNothing(lost, aside(fullQuestion(0), 0, newDelivery(run, 0)))
		if err := s.Questions().Ask(t.Context(), lost, fullQuestion(0), newDelivery(run, 0)); !errors.Is(err, engine.ErrClaimLost) {
			t.Errorf("asking with a claim that does not hold: got %v, want ErrClaimLost", err)
		}
	}
	s.opens()
	s.noneDue()
	s.status(run, engine.Running, 2)
	if got := s.get(run.ID).Questions; len(got) > 0 {
		t.Errorf("the run has %d questions", len(got))
	}
	s.end(claim, ended())
}

func askedMeanwhile(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	claim := s.claimFirst(run)
	question := fullQuestion(0)
	question.Kind = engine.AskPermission
	delivery := newDelivery(run, engine.QuestionDeliveryIndex(0, false))
	delivery.Question = engine.QuestionID(run.ID, 0)
	if err := s.Questions().Ask(t.Context(), claim, question, delivery); err != nil {
		t.Fatal(err)
	}
	s.status(run, engine.Running, 1)
	s.holds(longLease, claim)
	want := s.justAsked(run, question)
	s.opens(want)
	delivery.CreatedAt, delivery.Due = want.AskedAt, want.AskedAt
	s.knows(run, delivery)
	s.takes([]*engine.Delivery{delivery})

	s.advance(time.Minute)
	question.Text = "once more" // with the same number: its time goes on
	if err := s.Questions().Ask(t.Context(), claim, question); err != nil {
		t.Fatal(err)
	}
	want.Text = question.Text
	s.isQuestion(want)
	s.answer(want)
	s.opens()
	s.status(run, engine.Running, 1)
	s.holds(longLease, claim)
	s.claimAll()
	s.end(claim, ended())
}

func questionsOfStartedRuns(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	first := s.putAside(run, agentQuestion(0), 0)
	s.answer(first)
	s.requeue(s.claimAsked(run, first))
	s.end(s.claimAsked(run, first), waitFor(time.Hour))
	s.status(run, engine.Queued, 0)
	s.resume()
	s.end(s.claimAsked(run, first), interrupted(0))
	claims := s.claimFor(shortLease, 1)
	s.sameRuns("claimed", claims, run)
	second := fullQuestion(1)
	if err := s.Questions().Ask(t.Context(), claims[0], second); err != nil {
		t.Fatal(err)
	}
	second = s.justAsked(run, second)
	s.advance(shortLease + slack)
	claim := s.reclaim(run)
	same(t, "the questions of the claim", claim.Questions, []*engine.Question{first, second})
	if claim.Attempt != 3 {
		t.Errorf("claimed for attempt %d, want 3", claim.Attempt)
	}
	s.end(claim, aside(second, 0)) // the start that does not count is this one
	s.status(run, engine.Waiting, 2)
	s.isQuestion(second)
	s.answer(second)
	s.end(s.claimFirst(run), ended())
}

func deliveriesOfUnfinished(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	asks := newDelivery(run, engine.QuestionDeliveryIndex(0, false))
	asks.Question, asks.RunStatus = engine.QuestionID(run.ID, 0), engine.Waiting
	s.end(s.claimFirst(run), aside(fullQuestion(0), 0, asks))
	question := s.justAsked(run, fullQuestion(0))
	asks.CreatedAt, asks.Due = question.AskedAt, question.AskedAt
	s.knows(run, asks)
	s.counts(1, 0)
	given := s.takes([]*engine.Delivery{asks})[0]
	given.Progress = "posted there"
	s.settle(given, engine.Delivered, 0, "")
	asks = given
	s.counts(0, 0)
	s.prune(engine.Limits{Retention: time.Nanosecond, KeyAge: time.Nanosecond, History: engine.NoHistory})
	s.status(run, engine.Waiting, 0)
	s.isQuestion(question)

	closes := newDelivery(run, engine.QuestionDeliveryIndex(0, true))
	closes.Question, closes.Closes = question.ID(), true
	again := *asks
	again.Body = "not once more"
	s.answer(question, closes, &again) // of which one is there already
	closes.CreatedAt, closes.Due = question.Answer.At, question.Answer.At
	s.knows(run, asks, closes)
	closes = s.takes([]*engine.Delivery{closes})[0]
	s.settle(closes, engine.Dead, 0, "gone")
	s.counts(0, 1)
	s.prune(engine.Limits{Retention: time.Nanosecond})

	end := endedWith(newDelivery(run, 0), newDelivery(run, 1))
	s.end(s.claimAsked(run, question), end)
	for _, d := range end.Deliveries {
		d.CreatedAt, d.Due = s.get(run.ID).FinishedAt, s.get(run.ID).FinishedAt
	}
	s.knows(run, append(slices.Clone(end.Deliveries), asks, closes)...)
	ids := []string{}
	for _, d := range s.listDeliveries(engine.DeliveryQuery{Limit: 3}) {
		ids = append(ids, d.ID)
	}
	if want := []string{closes.ID, asks.ID, end.Deliveries[1].ID, end.Deliveries[0].ID}; !slices.Equal(ids, want) {
		t.Errorf("the list has %v, want %v", ids, want)
	}
	s.takes(end.Deliveries)
}

// opens expects these to be the open questions for people, of which the last was asked last.
func (s *store) opens(want ...*engine.Question) {
	s.t.Helper()
	for _, limit := range []int{1, 3, 100} {
		got := allPages(s.t, limit, func(cursor string) ([]*engine.Question, string, error) {
			return s.Questions().List(s.t.Context(), limit, cursor)
		})
		if len(got) != len(want) {
			s.t.Fatalf("%d questions are open, want %d", len(got), len(want))
		}
		for i, question := range got {
			listed := *want[len(want)-1-i]
			listed.State = nil
			same(s.t, fmt.Sprint("open question ", i), question, &listed)
		}
	}
	if n, err := s.Questions().Count(s.t.Context()); err != nil || n != len(want) {
		s.t.Errorf("%d questions are open, want %d: %v", n, len(want), err)
	}
}

func openQuestionsInOrder(t *testing.T, s *store) {
	s.opens()
	var open []*engine.Question
	kinds := []engine.QuestionKind{engine.AskStart, engine.AskAgent, engine.AskDeliver, engine.AskInput, engine.AskAgent, engine.AskPermission}
	for i := range 12 {
		run := s.addTo(fmt.Sprint("chat ", i))[0]
		question := fullQuestion(0)
		question.Kind, question.For = kinds[i%len(kinds)], 0
		question = s.putAside(run, question, 0)
		if question.Kind.ForPeople() {
			open = append(open, question)
		}
		s.advance(time.Minute)
	}
	s.opens(open...)
	page, cursor, err := s.Questions().List(t.Context(), 2, "")
	if err != nil || len(page) != 2 || cursor == "" {
		t.Fatalf("got %d questions, %q and %v", len(page), cursor, err)
	}
	s.answer(open[7])
	s.answer(open[6]) // where the page ended
	s.answer(open[3])
	open = slices.Delete(slices.Delete(open, 6, 8), 3, 4)
	s.opens(open...)
	rest, _, err := s.Questions().List(t.Context(), 2, cursor)
	if err != nil || len(rest) != 2 || rest[0].ID() != open[4].ID() || rest[1].ID() != open[3].ID() {
		t.Errorf("the next page has %d questions: %v", len(rest), err)
	}
	if page, cursor, err := s.Questions().List(t.Context(), 0, ""); len(page) > 0 || cursor != "" || err != nil {
		t.Errorf("a page of none has %d questions, %q and %v", len(page), cursor, err)
	}
	for _, cursor := range []string{"x", "\x00", "%", " ", "01890a5d-ac96-774b-bcce-b302099a8057x", open[0].ID()[:10]} {
		if page, _, err := s.Questions().List(t.Context(), 1, cursor); !errors.Is(err, engine.ErrCursor) {
			t.Errorf("%q: got %d questions and %v, want ErrCursor", cursor, len(page), err)
		}
	}
}

func questionsArePruned(_ *testing.T, s *store) {
	runs := s.addTo("a", "b")
	question := s.putAside(runs[0], fullQuestion(0), 0)
	kept := s.putAside(runs[1], agentQuestion(0), 0)
	s.advance(24 * time.Hour)
	s.prune(engine.Limits{Retention: time.Hour, KeyAge: time.Hour, History: time.Hour})
	s.isQuestion(question)
	s.endQueued(runs[0], ended())
	s.prune(engine.Limits{Retention: time.Hour})
	s.isClosed(question)
	s.advance(2 * time.Hour)
	s.prune(engine.Limits{Retention: time.Hour})
	s.gone(runs[0].ID)
	s.noQuestion(question.ID())
	s.opens()
	s.status(runs[1], engine.Waiting, 0)
	s.isQuestion(kept)
}

func asideIsNotCancelled(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	s.putAside(run, fullQuestion(0), 0)
	if err := s.Runs().Cancel(t.Context(), run.ID, "somebody"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("cancelling a run that is put aside: got %v, want ErrNotFound", err)
	}
	s.status(run, engine.Waiting, 0)
}

func carriedOnElsewhere(_ *testing.T, a *store) {
	b := a.join()
	runs := a.addTo("a", "a")
	question := a.putAside(runs[0], fullQuestion(0), 0)
	a.close()
	b.status(runs[0], engine.Waiting, 0)
	b.claimAll()
	b.opens(question)
	b.answer(question)
	b.end(b.claimAsked(runs[0], question), ended())
	b.claimThrough(runs[1])
}
