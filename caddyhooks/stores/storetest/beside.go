package storetest

import (
	"slices"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var besideChecks = []check{
	{"runs of a hook stand before and behind others of their chat", besideInChat},
	{"no more of them are told than asked for", besideUpTo},
	{"a run that is claimed, put aside or put back stands before the others", besideHead},
}

// standsBeside checks which runs stand before a run and which behind it, the last ones first.
func (s *store) standsBeside(run *engine.Run, most int, before, behind []*engine.Run) {
	s.t.Helper()
	gotBefore, gotBehind, err := s.Runs().Beside(s.t.Context(), run, most)
	if err != nil {
		s.t.Fatal(err)
	}
	idsOf := func(runs []*engine.Run) (ids []string) {
		for _, run := range runs {
			ids = append(ids, run.ID)
		}
		return ids
	}
	if !slices.Equal(gotBefore, idsOf(before)) || !slices.Equal(gotBehind, idsOf(behind)) {
		s.t.Errorf("beside %s there are %v and %v, want %v and %v", run.ID, gotBefore, gotBehind, idsOf(before), idsOf(behind))
	}
}

func besideInChat(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	other, elsewhere := newRun("a"), newRun("b")
	other.Hook = "other"
	s.add(other, elsewhere)
	last := s.addTo("a")[0]
	s.standsBeside(runs[0], 10, nil, []*engine.Run{last, runs[2], runs[1]})
	s.standsBeside(runs[1], 10, runs[:1], []*engine.Run{last, runs[2]})
	s.standsBeside(last, 10, []*engine.Run{runs[2], runs[1], runs[0]}, nil)
	s.standsBeside(other, 10, nil, nil)
	s.standsBeside(elsewhere, 10, nil, nil)
	s.endQueued(runs[1], ended())
	s.standsBeside(last, 10, []*engine.Run{runs[2], runs[0]}, nil)
	s.standsBeside(runs[1], 10, nil, nil)
}

func besideUpTo(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a", "a", "a")
	s.standsBeside(runs[2], 1, runs[1:2], runs[4:])
	s.claimFirst(runs[0])
	s.standsBeside(runs[4], 2, []*engine.Run{runs[3], runs[2]}, nil)
	s.standsBeside(runs[1], 2, runs[:1], []*engine.Run{runs[4], runs[3]})
}

func besideHead(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	check := func() {
		s.t.Helper()
		s.standsBeside(runs[0], 10, nil, []*engine.Run{runs[2], runs[1]})
		s.standsBeside(runs[1], 10, runs[:1], runs[2:])
	}
	claim := s.claimFirst(runs[0])
	check()
	s.requeue(claim)
	check()
	s.putAside(runs[0], agentQuestion(0), 0)
	check()
	s.endQueued(runs[0], ended())
	s.claimFirst(runs[1])
	s.standsBeside(runs[1], 10, nil, runs[2:])
	s.standsBeside(runs[2], 10, runs[1:2], nil)
}
