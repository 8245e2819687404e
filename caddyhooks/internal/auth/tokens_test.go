package auth

import (
	"net/http"
	"strings"
	"testing"
)

func TestTokensMatch(t *testing.T) {
	tokens := NewTokens("old-token", " new-token\n", "", "  ")
	for _, c := range []struct {
		name string
		auth []string
		own  []string
		want bool
	}{
		{"bearer", []string{"Bearer old-token"}, nil, true},
		{"second token", []string{"Bearer new-token"}, nil, true},
		{"scheme in any case", []string{"bEaReR old-token"}, nil, true},
		{"several spaces", []string{"Bearer   old-token "}, nil, true},
		{"own header", nil, []string{"old-token"}, true},
		{"own header, spaces", nil, []string{" new-token\t"}, true},
		{"good bearer, bad own", []string{"Bearer old-token"}, []string{"bad"}, true},
		{"bad bearer, good own", []string{"Bearer bad"}, []string{"old-token"}, true},
		{"other scheme, good own", []string{"Basic dTpw"}, []string{"old-token"}, true},
		{"other scheme first", []string{"Basic dTpw", "Bearer old-token"}, nil, true},
		{"fourth line", []string{"a", "b", "c", "Bearer old-token"}, nil, true},
		{"fifth line", []string{"a", "b", "c", "d", "Bearer old-token"}, nil, false},
		{"fifth line of own", nil, []string{"a", "b", "c", "d", "old-token"}, false},

		{"nothing", nil, nil, false},
		{"empty values", []string{""}, []string{""}, false},
		{"blank token", []string{"Bearer "}, []string{" "}, false},
		{"scheme alone", []string{"Bearer"}, nil, false},
		{"token alone", []string{"old-token"}, nil, false},
		{"no space", []string{"Bearerold-token"}, nil, false},
		{"scheme in own header", nil, []string{"Bearer old-token"}, false},
		{"other scheme", []string{"Basic old-token"}, nil, false},
		{"scheme that begins alike", []string{"BearerX old-token"}, nil, false},
		{"wrong case", []string{"Bearer OLD-TOKEN"}, nil, false},
		{"beginning of the token", []string{"Bearer old-toke"}, nil, false},
		{"token and more", []string{"Bearer old-tokenx"}, nil, false},
		{"token and a word", []string{"Bearer old-token x"}, nil, false},
		{"two tokens in a line", []string{"Bearer old-token, Bearer new-token"}, nil, false},
		{"both tokens glued", nil, []string{"old-tokennew-token"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			for _, v := range c.auth {
				h.Add("Authorization", v)
			}
			for _, v := range c.own {
				h.Add("X-Service-Token", v)
			}
			if got := tokens.Match(h); got != c.want {
				t.Errorf("Match(%v) = %v", h, got)
			}
		})
	}
}

func TestTokensWithoutTokenMatchNothing(t *testing.T) {
	h := http.Header{"Authorization": {"Bearer "}, "X-Service-Token": {""}}
	for _, tokens := range []Tokens{{}, NewTokens(), NewTokens("", " \t\n")} {
		if !tokens.Empty() {
			t.Error("not empty")
		}
		if tokens.Match(h) {
			t.Error("an empty set let a blank token in")
		}
	}
	if NewTokens("", "x").Empty() {
		t.Error("a set with a token is empty")
	}
}

func TestTokensRefuseEveryFlippedBit(t *testing.T) {
	const token = "wh_7Hq2mZ-4fT.example~TOKEN/9+="
	tokens := NewTokens(token)
	for i := range len(token) * 8 {
		flipped := flipBit([]byte(token), i)
		if tokens.Match(http.Header{"Authorization": {"Bearer " + string(flipped)}}) {
			t.Errorf("bit %d flipped in bearer: passed", i)
		}
		if tokens.Match(http.Header{"X-Service-Token": {string(flipped)}}) {
			t.Errorf("bit %d flipped in X-Service-Token: passed", i)
		}
	}
}

func FuzzTokensMatch(f *testing.F) {
	const token = "s3cret-token"
	tokens := NewTokens("other", token)
	for _, v := range []string{"Bearer " + token, "bearer  " + token + " ", "Basic dTpw", "Bearer", token, " ", "\x00", "BEARER\t" + token} {
		f.Add(v, "")
		f.Add("", v)
	}
	f.Fuzz(func(t *testing.T, authorization, own string) {
		got := tokens.Match(http.Header{"Authorization": {authorization}, "X-Service-Token": {own}})
		carries := func(s string) bool { s = strings.Trim(s, " \t"); return s == token || s == "other" }
		want := carries(own)
		if a := strings.TrimLeft(authorization, " \t"); len(a) > 7 && strings.EqualFold(a[:7], "bearer ") {
			want = want || carries(a[7:])
		}
		if got != want {
			t.Errorf("Match(%q, %q) = %v", authorization, own, got)
		}
	})
}

func BenchmarkTokensMatch(b *testing.B) {
	const token = "wh_0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, tokens := range map[string]Tokens{"one": NewTokens(token), "four": NewTokens("a", "b", "c", token)} {
		b.Run(name, func(b *testing.B) {
			h := http.Header{"Authorization": {"Bearer " + token}}
			b.ReportAllocs()
			for b.Loop() {
				if !tokens.Match(h) {
					b.Fatal("refused")
				}
			}
		})
	}
}
