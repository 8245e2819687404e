package auth_test

import (
	"encoding/binary"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

func TestASignatureIsForOneBody(t *testing.T) {
	t.Parallel()
	digest := func(n int) (d [32]byte) {
		binary.BigEndian.PutUint64(d[:], uint64(n))
		return d
	}
	var known auth.OneBody
	first, other := digest(1), digest(2)
	if !known.Allows(first, first) {
		t.Error("one that was never used is refused")
	}
	known.Note(first, first)
	known.Note(first, other)
	if !known.Allows(first, first) || known.Allows(first, other) || !known.Allows(other, other) {
		t.Error("it is not good for its first body alone")
	}
	const many = 25_000
	for n := range many {
		known.Note(digest(10+n), first)
	}
	for n, want := range map[int]bool{1: true, 10 + many - 10_001: true, 10 + many - 10_000: false, 9 + many: false} {
		if known.Allows(digest(n), other) != want {
			t.Errorf("after many others, a new body for signature %d is allowed: %v", n, !want)
		}
	}
}
