package nodescheck

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The promises.
const (
	NothingLost    = "a run that was acknowledged ends"
	OneEnd         = "a run has one end, and everybody is told the same"
	Fenced         = "the end of a run is that of whoever had its lease last"
	OrderInChat    = "runs of a chat start in the order of their requests"
	OneTurnOfRun   = "a run has one turn at a time while leases hold"
	OneTurnOfChat  = "a chat has one turn at a time while leases hold"
	RevokedToken   = "a token that was revoked is not accepted"
	TokenInForce   = "a token that is in force is accepted"
	OneRunOfOneKey = "requests with the same key become one run"
)

// Fault is a promise that was broken.
type Fault struct {
	Promise string
	Story   string
}

func (f Fault) String() string { return f.Promise + ": " + f.Story }

// Check returns the promises that a history shows to be broken.
func Check(h *History) []Fault {
	c := &checker{History: h, turns: make(map[string][]*Turn), ends: make(map[string][]End)}
	for i := range h.Turns {
		c.turns[h.Turns[i].Run] = append(c.turns[h.Turns[i].Run], &h.Turns[i])
	}
	for _, turns := range c.turns {
		slices.SortFunc(turns, func(a, b *Turn) int { return cmp.Compare(a.Began, b.Began) })
	}
	for _, end := range h.Stored {
		c.ends[end.Run] = append(c.ends[end.Run], end)
	}
	c.checkEnds()
	c.checkFences()
	c.checkOrder()
	c.checkOverlaps()
	c.checkTokens()
	c.checkKeys()
	return c.faults
}

type checker struct {
	*History
	turns  map[string][]*Turn // by run, in their order
	ends   map[string][]End   // by run
	faults []Fault
}

func (c *checker) fault(promise, story string, args ...any) {
	c.faults = append(c.faults, Fault{promise, fmt.Sprintf(story, args...)})
}

func (c *checker) checkEnds() {
	for run, ends := range c.ends {
		if len(ends) > 1 {
			c.fault(OneEnd, "%s has the ends %+v", run, ends)
		}
	}
	lost := make(map[string]bool)
	for _, r := range c.Requests {
		if r.Run == "" {
			continue
		}
		ends := c.ends[r.Run]
		if len(ends) == 0 {
			if !lost[r.Run] {
				c.fault(NothingLost, "%+v", r)
			}
			lost[r.Run] = true
		} else if r.Reply != "" && r.Reply != ends[0].Reply {
			c.fault(OneEnd, "%+v was told another end than the store has: %+v", r, ends[0])
		}
	}
}

// checkFences looks for runs whose end was stored by a node from which they had been taken away.
func (c *checker) checkFences() {
	for run, ends := range c.ends {
		turns := c.turns[run]
		kept := slices.IndexFunc(turns, func(turn *Turn) bool { return turn.Reply == ends[0].Reply })
		if kept < 0 {
			if ends[0].Reply != "" {
				c.fault(Fenced, "%s has an end that is of none of its turns: %+v", run, ends[0])
			}
			continue // it failed
		}
		for _, later := range turns[kept+1:] {
			if !c.mayHaveBegunLate(later) {
				c.fault(Fenced, "%s has the end of %+v, though %+v came after it", run, *turns[kept], *later)
			}
		}
	}
}

func (c *checker) checkOrder() {
	type start struct {
		run string
		at  time.Duration
	}
	type event struct {
		at     time.Duration
		isSent bool // a request was sent; otherwise one was acknowledged
		start
	}
	firstSent := make(map[string]time.Duration) // by text
	for _, r := range c.Requests {
		if sent, isKnown := firstSent[r.Text]; !isKnown || r.Sent < sent {
			firstSent[r.Text] = r.Sent
		}
	}
	chats := make(map[string][]event)
	for run, turns := range c.turns {
		first := turns[0]
		if sent, isKnown := firstSent[first.Text]; isKnown {
			chats[first.Chat] = append(chats[first.Chat], event{sent, true, start{run, first.Began}})
		}
	}
	for _, r := range c.Requests {
		if turns := c.turns[r.Run]; r.Run != "" && len(turns) > 0 {
			chats[r.Chat] = append(chats[r.Chat], event{r.Answered, false, start{r.Run, turns[0].Began}})
		}
	}
	for chat, events := range chats {
		slices.SortFunc(events, func(a, b event) int {
			if a.at == b.at && a.isSent != b.isSent { // at the same time: they are concurrent
				if a.isSent {
					return -1
				}
				return 1
			}
			return cmp.Compare(a.at, b.at)
		})
		var last start // of what has been acknowledged
		for _, e := range events {
			switch {
			case !e.isSent && e.start.at > last.at:
				last = e.start
			case e.isSent && e.start.at < last.at:
				c.fault(OrderInChat, "%s, sent at %v after %s was acknowledged, started at %v before it at %v (chat %s)",
					e.run, e.at, last.run, e.start.at, last.at, chat)
			}
		}
	}
}

func (c *checker) checkOverlaps() {
	chats := make(map[string][]*Turn)
	for i := range c.Turns {
		chats[c.Turns[i].Chat] = append(chats[c.Turns[i].Chat], &c.Turns[i])
	}
	for _, turns := range chats {
		slices.SortFunc(turns, func(a, b *Turn) int { return cmp.Compare(a.Began, b.Began) })
		var underWay []*Turn
		for _, turn := range turns {
			underWay = slices.DeleteFunc(underWay, func(earlier *Turn) bool { return earlier.Ended > 0 && earlier.Ended <= turn.Began })
			for _, earlier := range underWay {
				// Either the earlier one had lost its lease, or this one, which was begun late.
				if c.mayHaveEnded(earlier, turn.Began) || c.mayHaveBegunLate(turn) {
					continue
				}
				promise := OneTurnOfChat
				if turn.Run == earlier.Run {
					promise = OneTurnOfRun
				}
				c.fault(promise, "%+v began during %+v", *turn, *earlier)
			}
			underWay = append(underWay, turn)
		}
	}
}

func (c *checker) checkTokens() {
	for _, r := range c.Requests {
		inForceFrom, inForceUntil := time.Duration(-1), time.Duration(-1)
		if r.Token == 0 {
			inForceFrom = 0 // as it was configured
		}
		for _, change := range c.Changes {
			switch {
			case change.Version > r.Token:
				if r.Run != "" && change.Answered > 0 && change.Answered < r.Sent {
					c.fault(RevokedToken, "%+v was accepted after %+v", r, change)
				}
				if inForceUntil < 0 || change.Sent < inForceUntil {
					inForceUntil = change.Sent
				}
			case change.Version == r.Token && change.Answered > 0:
				inForceFrom = change.Answered
			}
		}
		if r.Status == 401 && inForceFrom >= 0 && inForceFrom < r.Sent && (inForceUntil < 0 || r.Answered < inForceUntil) {
			c.fault(TokenInForce, "%+v was refused", r)
		}
	}
}

func (c *checker) checkKeys() {
	completed := make(map[string]map[string]bool) // runs by key
	for _, r := range c.Requests {
		ends := c.ends[r.Run]
		if r.Key == "" || r.Run == "" || len(ends) == 0 || ends[0].Status != "completed" {
			continue // a run that was broken off leaves its key to the next one
		}
		if completed[r.Key] == nil {
			completed[r.Key] = make(map[string]bool)
		}
		completed[r.Key][r.Run] = true
	}
	for key, runs := range completed {
		if len(runs) > 1 {
			c.fault(OneRunOfOneKey, "%s became %v", key, slices.Sorted(maps.Keys(runs)))
		}
	}
}
