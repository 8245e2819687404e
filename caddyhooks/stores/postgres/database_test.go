package postgres

import (
	"testing"
)

func TestOldServersAreRefused(t *testing.T) {
	t.Parallel()
	for version, ok := range map[string]bool{"14.11 (Debian 14.11-1)": false, "9.6.24": false, "15.18": true, "16beta1": true, "18": true, "": true} {
		if err := checkServer(version); (err == nil) != ok {
			t.Errorf("%q: %v", version, err)
		}
	}
}
