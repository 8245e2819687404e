// Package shorthand turns Caddy's long placeholders back into their shorthands.
package shorthand

import (
	"regexp"
	"strings"
)

// Undo returns a text of a Caddyfile as it was written. Caddy expands its shorthands, such as {host}, in every token before any
// directive sees it. In a template, {host} is a key of the payload.
func Undo(text string) string {
	if !strings.Contains(text, "{http.") {
		return text
	}
	text = plain.Replace(text)
	for _, p := range patterns {
		text = p.long.ReplaceAllString(text, p.short)
	}
	return text
}

// plain replaces long forms. Where two shorthands have the same long form, it takes the shorter one.
var plain = strings.NewReplacer(
	"{http.request.host}", "{host}",
	"{http.request.hostport}", "{hostport}",
	"{http.request.port}", "{port}",
	"{http.request.orig_method}", "{orig_method}",
	"{http.request.orig_uri}", "{orig_uri}",
	"{http.request.orig_uri.path}", "{orig_path}",
	"{http.request.orig_uri.path.dir}", "{orig_dir}",
	"{http.request.orig_uri.path.file}", "{orig_file}",
	"{http.request.orig_uri.query}", "{orig_query}",
	"{http.request.orig_uri.prefixed_query}", "{orig_?query}",
	"{http.request.method}", "{method}",
	"{http.request.uri}", "{uri}",
	"{http.request.uri_escaped}", "{%uri}",
	"{http.request.uri.path}", "{path}",
	"{http.request.uri.path_escaped}", "{%path}",
	"{http.request.uri.path.dir}", "{dir}",
	"{http.request.uri.path.file}", "{file}",
	"{http.request.uri.query}", "{query}",
	"{http.request.uri.query_escaped}", "{%query}",
	"{http.request.uri.prefixed_query}", "{?query}",
	"{http.request.remote}", "{remote}",
	"{http.request.remote.host}", "{remote_host}",
	"{http.request.remote.port}", "{remote_port}",
	"{http.request.scheme}", "{scheme}",
	"{http.request.uuid}", "{uuid}",
	"{http.request.tls.cipher_suite}", "{tls_cipher}",
	"{http.request.tls.version}", "{tls_version}",
	"{http.request.tls.client.fingerprint}", "{tls_client_fingerprint}",
	"{http.request.tls.client.issuer}", "{tls_client_issuer}",
	"{http.request.tls.client.serial}", "{tls_client_serial}",
	"{http.request.tls.client.subject}", "{tls_client_subject}",
	"{http.request.tls.client.certificate_pem}", "{tls_client_certificate_pem}",
	"{http.request.tls.client.certificate_der_base64}", "{tls_client_certificate_der_base64}",
	"{http.reverse_proxy.upstream.hostport}", "{upstream_hostport}",
	"{http.vars.client_ip}", "{client_ip}",
)

// patterns are the long forms that end in a name of the user's choice. Files come before paths, whose long
// form they share.
var patterns = []struct {
	long  *regexp.Regexp
	short string
}{
	{regexp.MustCompile(`{http\.request\.header\.([\w-]*)}`), "{header.$1}"},
	{regexp.MustCompile(`{http\.request\.cookie\.([\w-]*)}`), "{cookie.$1}"},
	{regexp.MustCompile(`{http\.request\.host\.labels\.([\w-]*)}`), "{labels.$1}"},
	{regexp.MustCompile(`{http\.request\.uri\.path\.file\.([\w-]*)}`), "{file.$1}"},
	{regexp.MustCompile(`{http\.request\.uri\.path\.([\w-]*)}`), "{path.$1}"},
	{regexp.MustCompile(`{http\.request\.uri\.query\.([\w-]*)}`), "{query.$1}"},
	{regexp.MustCompile(`{http\.regexp\.([\w-\.]*)}`), "{re.$1}"},
	{regexp.MustCompile(`{http\.vars\.([\w-]*)}`), "{vars.$1}"},
	{regexp.MustCompile(`{http\.reverse_proxy\.([\w-\.]*)}`), "{rp.$1}"},
	{regexp.MustCompile(`{http\.intercept\.([\w-\.]*)}`), "{resp.$1}"},
	{regexp.MustCompile(`{http\.error\.([\w-\.]*)}`), "{err.$1}"},
	{regexp.MustCompile(`{http\.matchers\.file\.([\w-]*)}`), "{file_match.$1}"},
}
