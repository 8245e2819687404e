package service

import (
	"testing"
)

func TestNamesInEventsMeanNothingToAShell(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "", "admin": "admin", "Zoë O'Neill": "Zoë O_Neill", "ada+ops@example.com": "ada+ops@example.com",
		"--config=/x": "_-config__x", "$(id)": "__id_", "a;b|c`d`\"e\"": "a_b_c_d__e_",
	} {
		if got := plainName(name); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
}
