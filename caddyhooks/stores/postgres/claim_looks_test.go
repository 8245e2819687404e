package postgres

import (
	"testing"
	"time"
)

// A run that is ready late is found by the next look at all, and what was claimed a while ago is not looked at in between.
func TestClaimsLookAtAllOnceInAWhile(t *testing.T) {
	t.Parallel()
	var b behind
	asked := new(asks)
	looks := func() (turn int64, all bool) {
		turn, lapsed := b.from()
		return turn, lapsed == -1
	}
	if turn, all := looks(); turn != 0 || !all {
		t.Fatalf("the first look is from turn %d, at all leases: %v", turn, all)
	}
	b.note(asked, &turnoverAnswer{lastTurn: 7})
	if turn, all := looks(); turn != 0 || all {
		t.Errorf("just after, a look is from turn %d, at all leases: %v", turn, all)
	}
	for range 2 {
		b.noted = b.noted.Add(-lookLag)
		looks()
	}
	if turn, all := looks(); turn != 7 || all {
		t.Errorf("a while after, a look is from turn %d, at all leases: %v", turn, all)
	}
	b.note(asked, &turnoverAnswer{ready: mostRipened})
	if turn, all := looks(); turn != 0 || !all {
		t.Errorf("after many leases that were over, a look is from turn %d, at all leases: %v", turn, all)
	}
	b.full = b.full.Add(-fullLook)
	if turn, all := looks(); turn != 0 || !all {
		t.Errorf("later, a look is from turn %d, at all leases: %v", turn, all)
	}
	b.note(&asks{bounded: true}, new(turnoverAnswer))
	if turn, _ := looks(); turn != 0 {
		t.Errorf("after a question that leaves runs behind, a look is from turn %d", turn)
	}
	if _, lapsed := b.from(); lapsed < fullLook.Seconds() || lapsed > time.Minute.Seconds() {
		t.Errorf("leases are looked at that were over for %v seconds", lapsed)
	}
}
