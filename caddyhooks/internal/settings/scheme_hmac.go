package settings

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

func init() {
	registerScheme(&Scheme{
		Name:      "hmac",
		Title:     "a signature (HMAC)",
		arguments: "<header> <secret> [<prefix>]",
		minArgs:   2,
		maxArgs:   3,
		unmarshal: unmarshalHMAC,
		Fields: []string{"hmacHeader", "hmacSecret", "hmacPrefix", "algorithm", "signed", "keyEncoding", "timestampHeader", "timestampFormat",
			"authTolerance"},
		Compile:         compileHMAC,
		Tolerance:       usualTolerance,
		SecretHeaders:   func(m *Mapping) []string { return []string{m.HMACHeader} },
		WwwAuthenticate: "HMAC-SHA256",
		Missing:         "This hook accepts requests with a signature, not a bearer token.",
		Wrong:           "The signature is wrong.",
	})
}

// unmarshalHMAC parses:
//
//	auth hmac <header> <secret> [<prefix>] {
//		secret    <secret>...
//		algorithm sha256|sha512|sha1
//		signed    <text>
//		key_encoding base64
//		timestamp <header>|<entry> [<duration> [seconds|milliseconds|rfc3339]]
//	}
func unmarshalHMAC(d *caddyfile.Dispenser, args []string, m *Mapping, places SettingPlaces) error {
	m.HMACHeader, m.HMACSecret = args[0], Secrets{args[1]}
	if likePrefix.MatchString(args[1]) && (len(args) == 2 || !likePrefix.MatchString(args[2])) {
		return d.Err("the secret of auth hmac reads like a prefix, such as sha256=: the secret before it is missing, " +
			"because an environment variable {$NAME} is not set, or secret and prefix are in the wrong order")
	}
	if len(args) > 2 {
		m.HMACPrefix = args[2]
	}
	var more []string
	err := caddyconf.ReadBlock(d, "auth hmac",
		caddyconf.Set("secret", &more, caddyconf.Secrets),
		places.Note(caddyconf.Set("algorithm", &m.Algorithm, caddyconf.Word), "algorithm"),
		places.Note(caddyconf.Set("signed", &m.Signed, caddyconf.Template), "signed"),
		places.Note(caddyconf.Set("key_encoding", &m.KeyEncoding, caddyconf.Word), "keyEncoding"),
		readTimestamp(m, places, &m.TimestampFormat),
	)
	m.HMACSecret = append(m.HMACSecret, more...)
	return err
}

// readTimestamp reads the header of a timestamp and, if need be, how far it may be off. A format may follow, unless it is nil.
func readTimestamp(m *Mapping, places SettingPlaces, format *string) caddyconf.Directive {
	return places.Note(caddyconf.Directive{Word: "timestamp", Read: func(d *caddyfile.Dispenser) error {
		place := *d
		args := d.RemainingArgs()
		most, usage := 2, "timestamp takes a header and, if need be, a duration, as in: timestamp X-Timestamp 5m"
		if format != nil {
			most, usage = 3, "timestamp takes a header and, if need be, a duration and a format, as in: timestamp X-Timestamp 5m milliseconds"
		}
		if len(args) == 0 || len(args) > most || args[0] == "" {
			return place.Err(usage + caddyconf.Unset)
		}
		m.TimestampHeader = args[0]
		if len(args) == 3 {
			*format = args[2]
		}
		if len(args) == 1 {
			return nil
		}
		tolerance, err := caddy.ParseDuration(args[1])
		if err != nil || tolerance < time.Second || tolerance%time.Second != 0 {
			return place.Errf("'%s' is not a duration of whole seconds%s", args[1], caddyconf.DurationHint(args[1]))
		}
		m.AuthTolerance = int(tolerance / time.Second)
		return nil
	}}, "timestampHeader", "authTolerance", "timestampFormat")
}

// likePrefix matches what is a prefix of signatures rather than a secret. Secrets in base64 end with = too.
var likePrefix = regexp.MustCompile(`(?i)^(v[0-9]{1,2}|[st]|sig|sign|hmac|signature|` +
	`(hmac[_-]?)?(sha[_-]?[0-9]{1,3}([_-][0-9]{3})?|md5|blake[0-9a-z]{1,3}))[=:]$`)

func compileHMAC(m *Mapping, secrets HookSecrets) (auth.Verifier, error) {
	keys, err := secrets.list("hmacSecret", m.HMACSecret)
	if err != nil {
		return nil, err
	}
	if m.HMACHeader == "" {
		return nil, FieldErrorf("hmacHeader", "must name the header that carries the signature")
	}
	signature := auth.Signature{Prefix: m.HMACPrefix, Algorithm: auth.Algorithm(m.Algorithm)}
	if signature.Header, err = checkHeader("hmacHeader", m.HMACHeader); err != nil {
		return nil, err
	}
	if err := oneOf("algorithm", m.Algorithm, []string{string(auth.SHA256), string(auth.SHA512), string(auth.SHA1)}); err != nil {
		return nil, err
	}
	if m.Signed != "" {
		part, err := m.signedPart()
		if err != nil {
			return nil, err
		}
		signature.Signed = []auth.Part{part}
	}
	if signature.Time, err = m.timestamp(signature.Header); err != nil {
		return nil, err
	}
	decoded := asBytes(keys)
	if err := oneOf("keyEncoding", m.KeyEncoding, []string{"base64"}); err != nil {
		return nil, err
	}
	if m.KeyEncoding != "" {
		if decoded, err = decodeKeys(keys); err != nil && secretsUnread(m.HMACSecret, keys) {
			return auth.Tokens{}, nil
		} else if err != nil {
			return nil, FieldErrorf("hmacSecret", "%v", err)
		}
	}
	verifier, err := auth.NewHMAC(signature, decoded...)
	if err != nil {
		return nil, FieldErrorf("hmacSecret", "is refused: %v", err)
	}
	return verifier, nil
}

// timestamp says where the time of a signature is. What ends with = cannot be a header, and is the beginning of an entry.
func (m *Mapping) timestamp(signatures string) (at auth.Timestamp, err error) {
	formats := []string{string(auth.Seconds), string(auth.Milliseconds), string(auth.RFC3339)}
	if err := oneOf("timestampFormat", m.TimestampFormat, formats); err != nil || m.TimestampHeader == "" {
		return at, err
	}
	at.Format = auth.TimeFormat(m.TimestampFormat)
	if isEntry := strings.HasSuffix(m.TimestampHeader, "="); isEntry && m.TimestampHeader != m.HMACPrefix {
		at.Entry = m.TimestampHeader
	} else if isEntry {
		return at, FieldErrorf("timestampHeader", "must not be the prefix of the signature")
	} else if at.Header, err = checkHeader("timestampHeader", m.TimestampHeader); err != nil {
		return at, err
	}
	if at.Header == signatures {
		return at, FieldErrorf("timestampHeader", "must not be the header of the signature; an entry in it is written as t=")
	}
	at.Tolerance, err = m.tolerance(usualTolerance)
	return at, err
}

// decodeKeys decodes secrets in base64. Its errors follow the name of the field.
func decodeKeys(secrets []string) (keys [][]byte, err error) {
	for _, secret := range secrets {
		key, ok := auth.DecodeKey(secret)
		if !ok {
			return nil, errors.New("has a secret that is not base64")
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// checkHeader returns the name of a header in canonical form. Errors do not quote it: it may be a secret in a wrong place.
func checkHeader(field, name string) (string, error) {
	canonical := http.CanonicalHeaderKey(name)
	if canonical == "Host" {
		return "", FieldErrorf(field, "must not be Host: Caddy does not treat Host as a header")
	}
	if err := auth.CheckHeaderName(name); err != nil {
		return "", FieldErrorf(field, "is refused: %v", err)
	}
	return canonical, nil
}

// signedPart reads what is signed. The body must be among it: otherwise whoever sees a signature could send another body with it.
func (m *Mapping) signedPart() (auth.Part, error) {
	signed, err := template.ParseSigned(m.Signed)
	if err != nil {
		return auth.Part{}, FieldErrorf("signed", "is refused: %v", err)
	}
	sources := signed.Sources()
	if !slices.Contains(sources, template.Source{Kind: "body"}) {
		return auth.Part{}, FieldErrorf("signed", "must have {@body}, or the signature would be good for any body")
	}
	for _, source := range sources {
		if source.Kind == "time" && m.TimestampHeader == "" {
			return auth.Part{}, FieldErrorf("signed", "must not have {@time} without timestamp, which says where the time is")
		}
		if !slices.Contains([]string{"header", "query", "body", "hook", "time"}, source.Kind) {
			return auth.Part{}, FieldErrorf("signed", "must not have {%s}, which callers do not know", source)
		}
	}
	name := m.Name
	return auth.SourceOf(func(dst []byte, req *auth.Request, timestamp string) (_ []byte, missing string) {
		dst, absent := signed.AppendRaw(dst, template.Input{Source: func(source template.Source) (string, bool) {
			switch source.Kind {
			case "header":
				values := req.Header[source.Name]
				return strings.Join(values, ", "), len(values) > 0
			case "query":
				if req.Query == nil {
					return "", false
				}
				values := req.Query()[source.Name]
				return strings.Join(values, ", "), len(values) > 0
			case "body":
				return string(req.Body), true
			case "time":
				return timestamp, true
			default:
				return name, true
			}
		}})
		if absent != nil {
			return dst, absent.Name
		}
		return dst, ""
	}), nil
}
