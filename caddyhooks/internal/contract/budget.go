package contract

import (
	"errors"
	"time"
)

// A budget pays for the work on one run's answers, repaired ones included. Work beyond it is stopped
// by a panic with errTooCostly.
type budget struct {
	work      int           // nanoseconds by estimate, so that verdicts do not depend on the load of the machine
	time      time.Duration // on the clock, in case the estimate is wrong
	deadline  time.Time     // while run runs
	sinceLook int           // work since the last look at the clock
}

func answerBudget() *budget { return &budget{work: 800_000_000, time: answerTime} }

// answerTime is the time for all answers of a run. Tests on a busy machine need more.
var answerTime = 2 * time.Second

var errTooCostly = errors.New("it takes too much work to check it")

// run returns errTooCostly if the budget did not suffice for work.
func (b *budget) run(work func()) (err error) {
	start := time.Now()
	b.deadline = start.Add(b.time)
	defer func() {
		b.time -= time.Since(start)
		switch r := recover(); r {
		case nil:
		case errTooCostly:
			err = errTooCostly
		default:
			panic(r)
		}
	}()
	work()
	return nil
}

func (b *budget) spend(work int) {
	if work < 0 { // the estimate is too large for an int of 32 bits
		panic(errTooCostly)
	}
	b.work -= work
	b.sinceLook += work
	if b.sinceLook > 1_000_000 {
		b.sinceLook = 0
		if time.Now().After(b.deadline) {
			b.work = 0
		}
	}
	if b.work <= 0 {
		panic(errTooCostly)
	}
}
