package auth

import (
	"net/http"
	"strings"
	"testing"
)

func TestTokensVerify(t *testing.T) {
	t.Parallel()
	tokens := NewTokens("old-token", " new-token\n", "", "  ")
	for _, c := range []struct {
		name string
		auth []string
		own  []string
		want Reason // none: the request is accepted
	}{
		{"bearer", []string{"Bearer old-token"}, nil, ""},
		{"second token", []string{"Bearer new-token"}, nil, ""},
		{"scheme in any case", []string{"bEaReR old-token"}, nil, ""},
		{"several spaces", []string{"Bearer   old-token "}, nil, ""},
		{"own header", nil, []string{"old-token"}, ""},
		{"own header, spaces", nil, []string{" new-token\t"}, ""},
		{"good bearer, bad own", []string{"Bearer old-token"}, []string{"bad"}, ""},
		{"bad bearer, good own", []string{"Bearer bad"}, []string{"old-token"}, ""},
		{"other scheme, good own", []string{"Basic dTpw"}, []string{"old-token"}, ""},
		{"other scheme first", []string{"Basic dTpw", "Bearer old-token"}, nil, ""},
		{"fourth line", []string{"a", "b", "c", "Bearer old-token"}, nil, ""},
		{"fifth line", []string{"a", "b", "c", "d", "Bearer old-token"}, nil, TokenNotBearer},
		{"fifth line of own", nil, []string{"a", "b", "c", "d", "old-token"}, TokenUnknown},

		{"nothing", nil, nil, TokenMissing},
		{"empty values", []string{""}, []string{""}, TokenMissing},
		{"blank token", []string{"Bearer "}, []string{" "}, TokenNotBearer},
		{"scheme alone", []string{"Bearer"}, nil, TokenNotBearer},
		{"token alone", []string{"old-token"}, nil, TokenNotBearer},
		{"no space", []string{"Bearerold-token"}, nil, TokenNotBearer},
		{"scheme in own header", nil, []string{"Bearer old-token"}, TokenUnknown},
		{"other scheme", []string{"Basic old-token"}, nil, TokenNotBearer},
		{"scheme that begins alike", []string{"BearerX old-token"}, nil, TokenNotBearer},
		{"wrong case", []string{"Bearer OLD-TOKEN"}, nil, TokenUnknown},
		{"beginning of the token", []string{"Bearer old-toke"}, nil, TokenUnknown},
		{"token and more", []string{"Bearer old-tokenx"}, nil, TokenUnknown},
		{"token and a word", []string{"Bearer old-token x"}, nil, TokenUnknown},
		{"two tokens in a line", []string{"Bearer old-token, Bearer new-token"}, nil, TokenUnknown},
		{"both tokens glued", nil, []string{"old-tokennew-token"}, TokenUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			for _, v := range c.auth {
				h.Add("Authorization", v)
			}
			for _, v := range c.own {
				h.Add("X-Service-Token", v)
			}
			if got := tokens.Verify(&Request{Header: h}); got.OK != (c.want == "") || got.Reason != c.want || got.Missing != (c.want == TokenMissing || c.want == TokenNotBearer) {
				t.Errorf("Verify(%v) = %+v, want %q", h, got, c.want)
			}
		})
	}
}

func TestTokensWithoutTokenAcceptNothing(t *testing.T) {
	t.Parallel()
	h := http.Header{"Authorization": {"Bearer "}, "X-Service-Token": {""}}
	for _, tokens := range []Tokens{{}, NewTokens(), NewTokens("", " \t\n")} {
		if !tokens.Empty() {
			t.Error("not empty")
		}
		if tokens.Verify(&Request{Header: h}).OK {
			t.Error("an empty set let a blank token in")
		}
	}
	if NewTokens("", "x").Empty() {
		t.Error("a set with a token is empty")
	}
}

func TestTokensRefuseEveryFlippedBit(t *testing.T) {
	t.Parallel()
	const token = "wh_7Hq2mZ-4fT.example~TOKEN/9+="
	tokens := NewTokens(token)
	for i := range len(token) * 8 {
		flipped := flipBit([]byte(token), i)
		if tokens.Verify(&Request{Header: http.Header{"Authorization": {"Bearer " + string(flipped)}}}).OK {
			t.Errorf("bit %d flipped in bearer: passed", i)
		}
		if tokens.Verify(&Request{Header: http.Header{"X-Service-Token": {string(flipped)}}}).OK {
			t.Errorf("bit %d flipped in X-Service-Token: passed", i)
		}
	}
}

func FuzzTokensVerify(f *testing.F) {
	const token = "s3cret-token"
	tokens := NewTokens("other", token)
	for _, v := range []string{"Bearer " + token, "bearer  " + token + " ", "Basic dTpw", "Bearer", token, " ", "\x00", "BEARER\t" + token} {
		f.Add(v, "")
		f.Add("", v)
	}
	f.Fuzz(func(t *testing.T, authorization, own string) {
		got := tokens.Verify(&Request{Header: http.Header{"Authorization": {authorization}, "X-Service-Token": {own}}}).OK
		carries := func(s string) bool { s = strings.Trim(s, " \t"); return s == token || s == "other" }
		want := carries(own)
		if a := strings.TrimLeft(authorization, " \t"); len(a) > 7 && strings.EqualFold(a[:7], "bearer ") {
			want = want || carries(a[7:])
		}
		if got != want {
			t.Errorf("Verify(%q, %q).OK = %v", authorization, own, got)
		}
	})
}

func BenchmarkTokensVerify(b *testing.B) {
	const token = "wh_0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, tokens := range map[string]Tokens{"one": NewTokens(token), "four": NewTokens("a", "b", "c", token)} {
		b.Run(name, func(b *testing.B) {
			h := http.Header{"Authorization": {"Bearer " + token}}
			b.ReportAllocs()
			for b.Loop() {
				if !tokens.Verify(&Request{Header: h}).OK {
					b.Fatal("refused")
				}
			}
		})
	}
}
