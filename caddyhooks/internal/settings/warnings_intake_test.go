package settings

import (
	"slices"
	"strings"
	"testing"
)

func TestWarningsAboutComparisons(t *testing.T) {
	t.Parallel()
	const (
		fixed = ": it compares two fixed values: a path begins with $ or @"
		texts = ": the values of a form are texts: compare with one, as in '0'"
	)
	for _, c := range []struct{ body, only, want string }{
		{"", "$.action == 'opened' && !($.n > 5 || $.a[?@.b == true])", ""},
		{"", "'action' == 'opened'", fixed},
		{"", "$.a && $.b[?'status' == 'firing']", fixed},
		{"", "not $.a['b', ?1 < 2]", fixed},
		{"form", "$.code == '0' && length($.a) > 5 && count($.b[*]) == 1 && $.c != null", ""},
		{"form", "$.code == 0", texts},
		{"form", "5 < $.n", texts},
		{"form", "$.a[?@ == true]", texts},
		{"auto", "$.code == 0", ""},
	} {
		var want []string
		if c.want != "" {
			want = []string{"only " + c.only + c.want}
		}
		m := Mapping{Body: c.body, Only: []string{c.only}}
		if got := m.warningsAboutIntake(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", c.only, got, want)
		}
	}
	m := Mapping{Each: "$.alerts[?'status' == 'firing']"}
	if got := m.warningsAboutIntake(); !slices.Equal(got, []string{"each " + m.Each + fixed}) {
		t.Errorf("each: got %q", got)
	}
}

func TestWarningsAboutSecrets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mapping Mapping
		want    []string
	}{
		{Mapping{AuthMode: "stripe", AuthSecret: Secrets{"whsec_a", "whsec_b "}},
			[]string{"authSecret (auth in a Caddyfile) 2 of 2 begins or ends with white space: is that part of the secret?"}},
		{Mapping{AuthMode: "hmac", HMACHeader: "X-S", HMACSecret: Secrets{" a"}},
			[]string{"hmacSecret (auth in a Caddyfile) begins or ends with white space: is that part of the secret?"}},
		{Mapping{AuthMode: "stripe", AuthSecret: Secrets{"a b"}}, nil},
		{Mapping{AuthMode: "stripe", AuthSecret: Secrets{"whsec_a", "sk_live_b"}},
			[]string{"authSecret (auth in a Caddyfile) reads like an API key: use the signing secret of the endpoint, which begins with whsec_"}},
	} {
		if got := c.mapping.FindWarnings(); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestWarningsAboutPlaceholdersInFixedTexts(t *testing.T) {
	t.Parallel()
	m := Mapping{Action: "agent", RespondStatus: 200, RespondBody: `{"ok":true} {event.text}`, AgentFields: AgentFields{Deliver: true, Channel: "c", To: "{a.b}",
		CallbackURL: "https://example.com/{id}", Metadata: []byte(`{"team":"{{ team }}","a":{}}`)}}
	want := []string{"respondBody (respond in a Caddyfile) has {event.text}, which is not replaced: it is the same for all requests",
		"callbackUrl (callback_url in a Caddyfile) has {id}, which is not replaced: it is the same for all requests",
		"metadata has {{ team }}, which is not replaced: it is the same for all requests"}
	if got := m.FindWarnings(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	m.CallbackURL, m.Metadata = "", []byte(`{"a": "{$x"}`)
	if got := m.FindWarnings(); len(got) != 2 || !strings.HasPrefix(got[1], `metadata has {$x"}, which is not replaced`) {
		t.Errorf("got %q", got)
	}
	m.RespondBody, m.To, m.Metadata = `{"ok":true}`, "{a | upper}", []byte(`{ "a": {"b": {}}}`)
	if got := m.FindWarnings(); len(got) != 1 || !strings.HasPrefix(got[0], "to (deliver in a Caddyfile): {a | upper} is not replaced: there is no pipe") {
		t.Errorf("got %q", got)
	}
	m.To = "C123"
	if got := m.FindWarnings(); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}
