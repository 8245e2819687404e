package settings

import (
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func TestMistakesInAMappingAreNamed(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"fold":1}`:                "fold is unknown; did you mean foldSeconds? The fields of a hook are name, ",
		`{"respond":1}`:             "respond is unknown; did you mean respondStatus?",
		`{"template":""}`:           "template is unknown; did you mean messageTemplate?",
		`{"secret":""}`:             "secret is unknown; did you mean authSecret?",
		`{"max_payload_size":""}`:   "max_payload_size is unknown; did you mean maxPayloadSize?",
		`{"chatID":""}`:             "chatID is unknown; did you mean chatId?",
		`{"colour":""}`:             "colour is unknown; the fields",
		`{"only":"a"}`:              "only must be an array of strings",
		`{"only":[{"header":"X"}]}`: "only must be an array of strings",
		`{"historySeconds":"1h"}`:   "historySeconds must be a whole number",
	} {
		_, err := ParseMapping([]byte(raw))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "pinned") || strings.Contains(err.Error(), "warnings")) {
			t.Errorf("%s: the error offers fields that are not for writing: %v", raw, err)
		}
	}
}

func TestSecretsInTheFieldOfAnotherSchemeAreNamed(t *testing.T) {
	t.Parallel()
	secrets := HookSecrets{Resolve: func(secret string) (string, error) { return secret, nil }}
	for _, c := range []struct {
		mapping Mapping
		want    string
	}{
		{Mapping{AuthMode: "github", HMACSecret: Secrets{"s3cret"}}, `authSecret is missing: hmacSecret is for other schemes, and "github" reads authSecret`},
		{Mapping{AuthMode: "hmac", AuthSecret: Secrets{"s3cret"}}, `hmacSecret is missing: authSecret is for other schemes, and "hmac" reads hmacSecret`},
		{Mapping{AuthMode: "github"}, "authSecret is missing"},
	} {
		c.mapping.Name = "a"
		if _, err := c.mapping.Compile(new(Rules), secrets); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestNearestWord(t *testing.T) {
	t.Parallel()
	words := []string{"github", "gitlab", "hmac", "none", "token"}
	for written, want := range map[string]string{
		"githb": "github", "GitHub": "github", "gihtub": "github", "gitlba": "gitlab", "hamc": "hmac", "tokens": "token",
		"": "", "basic": "", "no": "", "x": "", strings.Repeat("token", 10): "",
	} {
		if got := text.Nearest(written, words); got != want {
			t.Errorf("%q: got %q, want %q", written, got, want)
		}
	}
}
