package requests

import "testing"

func TestMachinesThatAreThisOne(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST.": true, "app.localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "example.com": false, "localhost.example.com": false, "notlocalhost": false, "192.168.0.1": false, "0.0.0.0": false, "127.0.0.1.example.com": false,
	} {
		if got := isThisMachine(host); got != want {
			t.Errorf("%q: got %t", host, got)
		}
	}
}
