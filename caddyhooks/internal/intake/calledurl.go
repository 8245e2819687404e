package intake

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// calledURL is the URL that the caller used, as far as it is known here: a rewrite does not change it, and behind a trusted
// proxy scheme and host are those that the proxy tells.
func calledURL(r *http.Request) string {
	uri, host, scheme := r.RequestURI, r.Host, "http"
	if r.TLS != nil {
		scheme = "https"
	}
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		uri = original.RequestURI
	}
	if trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool); trusted {
		if proto := firstWord(r.Header.Get("X-Forwarded-Proto")); proto == "http" || proto == "https" {
			scheme = proto
		}
		if forwarded := firstWord(r.Header.Get("X-Forwarded-Host")); forwarded != "" {
			host = forwarded
		}
	}
	if absolute, err := url.Parse(uri); err == nil && absolute.IsAbs() { // as some proxies write it
		uri = absolute.RequestURI()
	}
	return scheme + "://" + host + uri
}

// firstWord is the first item of a list with commas.
func firstWord(list string) string {
	first, _, _ := strings.Cut(list, ",")
	return strings.TrimSpace(first)
}
