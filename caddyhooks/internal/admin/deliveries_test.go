package admin

import (
	"testing"
)

func TestHostsOfAFilter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Example.com": "example.com", "example.com:81": "example.com:81", "": "",
		"http://127.0.0.1:18182": "127.0.0.1:18182", "HTTPS://Example.com": "example.com:443", "http://example.com/": "example.com:80",
		"http://[::1]:81": "[::1]:81", "http://[::1]": "[::1]:80",
	} {
		if got, err := parseHost(text); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"http://", "http://:80", "http:///a", "://a", "ftp://a", "http://a/b", "http://a?b", "http://a#b", "http://u:p@a", "http://a b", "http://[::1"} {
		if got, err := parseHost(text); err == nil {
			t.Errorf("%s is taken for %q", text, got)
		}
	}
}

// An empty host would select the deliveries to all hosts.
func FuzzParseHost(f *testing.F) {
	f.Add("http://127.0.0.1:18182")
	f.Add("https://[::1]/")
	f.Add("http://u@:80")
	f.Fuzz(func(t *testing.T, text string) {
		if host, err := parseHost(text); err == nil && host == "" && text != "" {
			t.Errorf("%q is taken for no host", text)
		}
	})
}
