package nodescheck

import (
	"slices"
	"testing"
	"time"
)

const s = time.Second

// right is a history in which all is well, with a node that was frozen beyond its lease: its turn went on while another node began the
// next one, and its end was refused.
func right() *History {
	return &History{
		Lease: 3 * s,
		Requests: []Request{
			{Text: "a", Chat: "c", Node: "n1", Key: "ka", Sent: 1 * s, Answered: 2 * s, Status: 202, Run: "A"},
			{Text: "a", Chat: "c", Node: "n2", Key: "ka", Sent: 2 * s, Answered: 3 * s, Status: 202, Run: "A"},
			{Text: "b", Chat: "c", Node: "n2", Sent: 4 * s, Answered: 20 * s, Status: 200, Run: "B", Reply: "t3"},
			{Text: "x", Chat: "d", Node: "n3", Sent: 4 * s, Answered: 5 * s, Status: 503},
			{Text: "y", Chat: "d", Node: "n3", Token: 0, Sent: 31 * s, Answered: 32 * s, Status: 401},
			{Text: "z", Chat: "d", Node: "n3", Token: 1, Sent: 31 * s, Answered: 32 * s, Status: 202, Run: "Z"},
		},
		Turns: []Turn{
			{Run: "A", Chat: "c", Node: "n1", Text: "a", Reply: "t1", Began: 5 * s, Ended: 11 * s},
			{Run: "A", Chat: "c", Node: "n2", Text: "a", Reply: "t2", Began: 10 * s, Ended: 12 * s},
			{Run: "B", Chat: "c", Node: "n3", Text: "b", Reply: "t3", Began: 13 * s, Ended: 19 * s},
			{Run: "Z", Chat: "d", Node: "n3", Text: "z", Reply: "t4", Began: 33 * s, Ended: 34 * s},
		},
		Stored:   []End{{"A", "completed", "t2"}, {"B", "completed", "t3"}, {"Z", "completed", "t4"}},
		Changes:  []TokenChange{{Version: 1, Sent: 29 * s, Answered: 30 * s}},
		Troubles: []Trouble{{What: "frozen", Node: "n1", From: 6 * s, Until: 14 * s}},
	}
}

func TestRightHistoryPasses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*History){
		"as it is":                        func(*History) {},
		"a token is changed meanwhile":    func(h *History) { h.Changes[0].Answered = 31*s + s/2 },
		"the change of a token is unsure": func(h *History) { h.Changes[0].Answered = 0 },
		"a run fails without a turn":      func(h *History) { h.Turns, h.Stored[2] = h.Turns[:3], End{"Z", "failed", ""} },
		"a key is used again after a break": func(h *History) {
			h.Requests[1].Chat, h.Requests[1].Run, h.Stored[2] = "d", "Z", End{"Z", "failed", ""}
		},
		"requests at once, in any order": func(h *History) {
			h.Requests[2].Sent = 1 * s
			h.Turns[2].Began, h.Turns[2].Ended = 1*s, 2*s
		},
		"a turn is begun late by a node that was frozen before": func(h *History) {
			h.Turns = append(h.Turns, Turn{Run: "A", Chat: "c", Node: "n1", Text: "a", Reply: "t9", Began: 15 * s, Ended: 16 * s})
		},
		"the database was unreachable for all": func(h *History) { h.Troubles[0].Node = "" },
	} {
		h := right()
		change(h)
		if faults := Check(h); len(faults) > 0 {
			t.Errorf("%s: %v", name, faults)
		}
	}
}

func TestWrongHistoriesAreFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		want   string
		change func(*History)
	}{
		"an acknowledged run did not end":      {NothingLost, func(h *History) { h.Stored = slices.Delete(h.Stored, 0, 1) }},
		"one that nobody started":              {NothingLost, func(h *History) { h.Requests[3].Run = "X" }},
		"two ends are stored":                  {OneEnd, func(h *History) { h.Stored = append(h.Stored, End{"A", "failed", ""}) }},
		"a caller was told another end":        {OneEnd, func(h *History) { h.Requests[2].Reply = "t1" }},
		"the end of a node that was frozen":    {Fenced, func(h *History) { h.Stored[0].Reply = "t1" }},
		"the end of another run":               {Fenced, func(h *History) { h.Stored[0].Reply = "t3" }},
		"the later request starts first":       {OrderInChat, func(h *History) { h.Turns[2].Began, h.Turns[2].Ended = 4*s+s/2, 5*s-1 }},
		"also if nobody knows of the later":    {OrderInChat, func(h *History) { h.Requests[2].Run = ""; h.Turns[2].Began, h.Turns[2].Ended = 4*s+s/2, 5*s-1 }},
		"two turns of a run without a cause":   {OneTurnOfRun, func(h *History) { h.Troubles = nil }},
		"… before the lease can have ended":    {OneTurnOfRun, func(h *History) { h.Troubles[0].From = 9 * s }},
		"… for trouble of another node":        {OneTurnOfRun, func(h *History) { h.Troubles[0].Node = "n3" }},
		"… for trouble that was over":          {OneTurnOfRun, func(h *History) { h.Troubles[0].From, h.Troubles[0].Until = 0, 1*s }},
		"two turns of a chat without a cause":  {OneTurnOfChat, func(h *History) { h.Turns[2].Began = 11*s + s/2 }},
		"… the first of which never ended":     {OneTurnOfChat, func(h *History) { h.Turns[1].Ended = 0 }},
		"a run is accepted with an old token":  {RevokedToken, func(h *History) { h.Requests[4].Run = "Z" }},
		"a new token is refused":               {TokenInForce, func(h *History) { h.Requests[5].Status, h.Requests[5].Run = 401, "" }},
		"the token of the beginning, likewise": {TokenInForce, func(h *History) { h.Requests[3].Status = 401 }},
		"one key became two runs":              {OneRunOfOneKey, func(h *History) { h.Requests[1].Chat, h.Requests[1].Run = "d", "Z" }},
	} {
		h := right()
		test.change(h)
		faults := Check(h)
		if len(faults) == 0 || slices.ContainsFunc(faults, func(f Fault) bool { return f.Promise != test.want }) {
			t.Errorf("%s: found %v, want %q", name, faults, test.want)
		}
	}
}
