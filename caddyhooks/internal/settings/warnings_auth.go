package settings

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// warningsAboutAuth looks for mistakes in how callers authenticate. It quotes no secret.
func (m *Mapping) warningsAboutAuth() (found []string) {
	if ignored := m.ignoredByScheme(); len(ignored) > 0 {
		found = append(found, m.whyIgnored(ignored))
	}
	if slices.ContainsFunc(m.AuthSecret, likeShellVariable.MatchString) && m.readsField("authSecret") {
		found = append(found, whichOf(bothNames("authSecret"), m.AuthSecret, likeShellVariable.MatchString)+" "+takenAsWritten)
	}
	for _, field := range SecretFields {
		if m.readsField(field.Name) && slices.ContainsFunc(*field.In(m), hasOuterSpace) {
			found = append(found, whichOf(bothNames(field.Name), *field.In(m), hasOuterSpace)+" begins or ends with white space: is that part of "+
				"the secret?")
		}
	}
	if s := FindScheme(m.AuthMode); s != nil && s.takesSecrets() && s.minArgs == 0 && len(m.AuthSecret) == 0 {
		found = append(found, fmt.Sprintf("%s is not set, so no event is accepted: the secret that %s sends first is shown by caddy hooks status",
			bothNames("authSecret"), s.Title))
	}
	switch m.AuthMode {
	case "hmac":
		found = append(found, m.warningsAboutHMAC()...)
	case "token":
		if slices.ContainsFunc(m.AuthSecret, isShortToken) {
			found = append(found, fmt.Sprintf("%s has fewer than %d characters and can be guessed: use a long random one, for example from: "+
				"openssl rand -hex 32", whichOf(bothNames("authSecret"), m.AuthSecret, isShortToken), minToken))
		}
		if slices.ContainsFunc(m.AuthSecret, beginsWithBearer) {
			found = append(found, whichOf(bothNames("authSecret"), m.AuthSecret, beginsWithBearer)+" begins with the word Bearer: leave it out, "+
				"callers send it before the token")
		}
	case "stripe":
		if slices.ContainsFunc(m.AuthSecret, likeStripeKey.MatchString) {
			found = append(found, bothNames("authSecret")+" reads like an API key: use the signing secret of the endpoint, which begins with whsec_")
		}
	case "oidc":
		found = append(found, m.warningsAboutOIDC()...)
	case "none":
		if ranges, err := ParseFrom(m.From); err == nil {
			for _, r := range ranges {
				if r.Bits() == 0 {
					found = append(found, fmt.Sprintf("everybody may call this hook: %s is none, and from has %s, which is all addresses",
						bothNames("authMode"), r))
				}
			}
		}
	}
	return found
}

// likeStripeKey matches the keys of Stripe's API.
var likeStripeKey = regexp.MustCompile(`^(sk|rk|pk)_(live|test)_`)

func hasOuterSpace(secret string) bool { return secret != strings.TrimSpace(secret) }

// beginsWithBearer reports whether a token was copied with the word that stands before it in a header.
func beginsWithBearer(secret string) bool {
	first, _, _ := strings.Cut(strings.TrimSpace(secret), " ")
	return strings.EqualFold(first, "Bearer")
}

// isShortToken passes over secrets from elsewhere, whose length is not known here.
func isShortToken(secret string) bool {
	return !strings.Contains(secret, "{") && utf8.RuneCountInString(strings.TrimSpace(secret)) < minToken
}

// warningsAboutHMAC looks for mistakes in the fields of auth hmac.
func (m *Mapping) warningsAboutHMAC() (found []string) {
	secret := bothNames("hmacSecret")
	switch {
	case slices.ContainsFunc(m.HMACSecret, likeShellVariable.MatchString):
		found = append(found, secret+" "+takenAsWritten)
	case slices.ContainsFunc(m.HMACSecret, likePrefix.MatchString):
		found = append(found, secret+" reads like a prefix, such as sha256=: secret and prefix may be swapped")
	}
	algorithm := cmp.Or(m.Algorithm, string(auth.SHA256))
	if namesOther(m.HMACPrefix, algorithm) {
		advice := "or set algorithm"
		if algorithm == string(auth.SHA256) {
			advice = "such as X-Hub-Signature-256 with the prefix sha256="
		}
		found = append(found, fmt.Sprintf("%s is %s, which is that of another algorithm: signatures here are HMAC-%s, so use the header of "+
			"those, %s",
			bothNames("hmacPrefix"), m.HMACPrefix, strings.ToUpper(algorithm), advice))
	}
	if algorithm == string(auth.SHA1) {
		found = append(found, bothNames("algorithm")+" is sha1, which is weak: use sha256 if the sender can")
	}
	if m.TimestampHeader != "" && !m.signsHeader(m.TimestampHeader) {
		found = append(found, fmt.Sprintf("the timestamp is not signed, so whoever repeats a request can change it: if the sender signs it, "+
			"put it in %s, as in {@time}.{@body}",
			bothNames("signed")))
	}
	return found
}

// signsHeader reports whether a header is among what is signed.
func (m *Mapping) signsHeader(name string) bool {
	if m.Signed == "" {
		return false
	}
	signed, err := template.ParseSigned(m.Signed)
	return err != nil || slices.Contains(signed.Sources(), template.Source{Kind: "time"}) ||
		slices.Contains(signed.Sources(), template.Source{Kind: "header", Name: http.CanonicalHeaderKey(name)})
}

// namesOther reports whether a prefix names an algorithm, and not this one.
func namesOther(prefix, algorithm string) bool {
	plain := strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(prefix))
	if strings.Contains(plain, algorithm) {
		return false
	}
	return otherAlgorithm.MatchString(prefix) || strings.TrimRight(strings.TrimPrefix(plain, "hmac"), "=: ") == string(auth.SHA256)
}

// otherAlgorithm matches prefixes that name an algorithm other than SHA-256.
var otherAlgorithm = regexp.MustCompile(`(?i)^(hmac[_-]?)?(sha[_-]?(1|224|384|512|3)|md[_-]?[0-9]|blake|ripemd)[\w-]{0,8}[=: ]?$`)

// readsField reports whether the scheme of the mapping reads a field. An unknown scheme reads all.
func (m *Mapping) readsField(name string) bool {
	s := FindScheme(cmp.Or(m.AuthMode, BearerScheme.Name))
	return s == nil || slices.Contains(s.Fields, name)
}

// ignoredByScheme returns the names of fields for other schemes, which have no effect. A Caddyfile cannot set them.
func (m *Mapping) ignoredByScheme() (names []string) {
	fields := authFields()
	for _, field := range DescribedFields {
		if field.Name != "authMode" && slices.Contains(fields, field.Name) && !m.readsField(field.Name) &&
			!reflect.ValueOf(m).Elem().FieldByIndex(field.Index).IsZero() {
			names = append(names, field.Name)
		}
	}
	return names
}

// whyIgnored tells about such fields.
func (m *Mapping) whyIgnored(ignored []string) string {
	hmac := FindScheme("hmac").Fields
	isForHMAC := func(name string) bool { return slices.Contains(hmac, name) }
	switch {
	case cmp.Or(m.AuthMode, BearerScheme.Name) != BearerScheme.Name:
		return fmt.Sprintf(`%s ignored with "authMode": %q: leave %s out`, isOrAre(ignored), m.AuthMode, itOrThem(ignored))
	case !slices.ContainsFunc(ignored, func(name string) bool { return !isForHMAC(name) }):
		return fmt.Sprintf(`%s ignored without "authMode": "hmac", so callers send the token: set authMode, or leave %s out`, isOrAre(ignored),
			itOrThem(ignored))
	default:
		return fmt.Sprintf(`%s ignored without an authMode that reads %s, so callers send the token: set authMode, or leave %s out`,
			isOrAre(ignored), itOrThem(ignored), itOrThem(ignored))
	}
}
