package settings

import (
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
)

func TestPaceIsReadAsOperatorsWriteIt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]HookRate{
		"10/s": {10, time.Second}, "10/1s": {10, time.Second}, "1/m": {1, time.Minute}, "100/5m": {100, 5 * time.Minute}, "2/h": {2, time.Hour},
		"10": {}, "": {}, "/s": {}, "0/s": {}, "-1/s": {}, "1.5/s": {}, "10/": {}, "10/x": {}, "10/s/s": {}, "10/1ms": {}, "1/25h": {},
	} {
		got, err := ParsePace(text)
		if got != want || (err == nil) != (want.Runs > 0) {
			t.Errorf("%q is %v: %v", text, got, err)
		}
	}
}

// A rate that cannot be read any more pauses: nobody asked for all runs to start.
func TestPausesForTheEngine(t *testing.T) {
	t.Parallel()
	got := Starts([]Pause{{What: starts.Hook, Name: "a", By: "ann", Reason: "deploy"}, {What: starts.All, Rate: "10/1s"}, {What: starts.All, Rate: "?"}})
	if got[0].Rate.Runs != 0 || got[0].Name != "a" || got[0].By != "ann" || got[1].Rate != (starts.Rate{Runs: 10, Per: time.Second}) || got[2].Rate.Runs != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestPausesAreSetReplacedAndResumed(t *testing.T) {
	t.Parallel()
	var before Settings
	if err := before.SetPause(Pause{What: starts.Hook, Name: "a"}); err != nil {
		t.Fatal(err)
	}
	after := before
	if err := after.SetPause(Pause{What: starts.Hook, Name: "a", Reason: "again"}); err != nil || len(after.Pauses) != 1 || before.Pauses[0].Reason != "" {
		t.Errorf("%v: before %+v, after %+v", err, before.Pauses, after.Pauses)
	}
	if after.Resume(starts.Chat, "a") || !after.Resume(starts.Hook, "a") || len(after.Pauses) != 0 || len(before.Pauses) != 1 {
		t.Errorf("before %+v, after %+v", before.Pauses, after.Pauses)
	}
	if merged := before.Merge(after); len(merged.Pauses) != 0 {
		t.Errorf("a resumed hook is paused again: %+v", merged.Pauses)
	}
}
