package storetest

import (
	"bytes"
	"testing"
)

var settingsChecks = []check{
	{"there are none at first", noSettings},
	{"what was saved last is there", lastSettings},
}

func noSettings(t *testing.T, s *store) {
	if got, err := s.Settings(t.Context()); got != nil || err != nil {
		t.Errorf("got %q and %v, want nothing", got, err)
	}
}

func lastSettings(t *testing.T, s *store) {
	for _, settings := range [][]byte{
		[]byte(`{"enabled": true}`), []byte("not JSON, \x00 and \xff"), bytes.Repeat([]byte("long "), 50_000), []byte(`{}`),
	} {
		mine := bytes.Clone(settings)
		if err := s.SaveSettings(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		clear(mine) // it is the caller's, to use for something else
		for range 2 {
			got, err := s.Settings(t.Context())
			if err != nil || !bytes.Equal(got, settings) {
				t.Fatalf("got %.80q and %v, want %.80q", got, err, settings)
			}
			clear(got)
		}
	}
}
