package text

import (
	"net/url"
	"strings"
)

// MaskedQuery hides the query of a callback URL, in which many receivers want a token.
func MaskedQuery(callback string) string {
	if url, query, _ := strings.Cut(callback, "?"); query != "" {
		return url + "?" + Mask
	}
	return callback
}

// MaskedCallback is the scheme and the host of a callback URL. Its path or its query is a secret for many receivers, as in
// https://hooks.example.com/services/T0/B0/secret, and so only the fact that there is one is told.
func MaskedCallback(callback string) string {
	u, err := url.Parse(callback)
	if err != nil || u.Host == "" {
		return ""
	}
	masked := u.Scheme + "://" + u.Host
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		masked += "/…"
	}
	return masked
}

// Mask is shown in place of a secret.
const Mask = "••••"
