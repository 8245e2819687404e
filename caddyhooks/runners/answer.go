package runners

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

// answerError is an answer of a runner that cannot be taken. Its text is for operators, and has the first line of the answer.
type answerError struct {
	problem string // as in "the runner answered 500"
	answer  string // the beginning of it
	hint    string // about what to do, if anything
	status  int    // of the model, if the answer tells of an error of it
}

func (e *answerError) Error() string {
	text := e.problem
	if line := oneline.First(e.answer, maxAnswerLine); line != "" {
		text += ": " + line
	}
	if e.hint != "" {
		text += "; " + e.hint
	}
	return text
}

// Answer is the beginning of the answer if there is more to it than Error shows.
func (e *answerError) Answer() string {
	const longestEscape = 4 // \x1b for one byte
	answer := strings.TrimSpace(e.answer)
	if oneline.Of(answer, longestEscape*len(answer)) == oneline.First(answer, maxAnswerLine) {
		return ""
	}
	return answer
}

const (
	maxAnswerLine      = 256
	maxAnswerBeginning = 4 << 10
)

// beginningOfText is as much of a text as an answerError needs.
func beginningOfText[T string | []byte](text T) string {
	return string(text[:min(len(text), maxAnswerBeginning)])
}

// beginningOf reads as much of an answer as an answerError needs. That is also enough of a short one for its connection to be
// used again.
func beginningOf(resp *http.Response) string {
	// After 101 the body is the bare connection, and reading from that does not end with the context.
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return ""
	}
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBeginning)) // what has come is shown, though the rest may not come
	return string(data)
}

// mediaType is the type in a Content-Type header, whatever its parameters are like.
func mediaType(contentType string) string {
	name, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(name))
}

// isPage reports whether a type is that of pages for people: of a login, or of a proxy that has no better answer.
func isPage(mediaType string) bool {
	return mediaType == "text/html" || mediaType == "application/xhtml+xml"
}

// redactor takes the secrets of a runner out of texts that may repeat them: a runner may answer with the request that it got.
type redactor struct {
	secrets []string // in all spellings
	whole   *strings.Replacer
}

const redacted = "REDACTED"

// newRedactor knows a token, the user, the password and the query of a URL, and more secrets.
func newRedactor(token, address string, more ...string) redactor {
	const shortest = 8
	var secrets []string
	hide := func(secret string) {
		if secret != "" {
			secrets = append(secrets, spellings(secret)...)
		}
	}
	hide(token)
	for _, secret := range more {
		hide(secret)
	}
	if u, err := url.Parse(address); err == nil {
		if password, ok := u.User.Password(); ok {
			hide(u.User.String())
			hide(base64.StdEncoding.EncodeToString([]byte(u.User.Username() + ":" + password)))
			hide(password)
		} else if name := u.User.Username(); len(name) >= shortest {
			hide(name)
			hide(base64.StdEncoding.EncodeToString([]byte(name + ":")))
		}
		if len(u.RawQuery) >= shortest {
			hide(u.RawQuery)
		}
		for _, values := range u.Query() {
			for _, value := range values {
				if len(value) >= shortest { // a short one is no secret, and may be part of any word
					hide(value)
				}
			}
		}
	}
	var pairs []string
	for _, secret := range secrets {
		pairs = append(pairs, secret, redacted)
	}
	return redactor{secrets, strings.NewReplacer(pairs...)}
}

// spellings are the ways in which an answer, or an error about its JSON, writes a text.
func spellings(text string) []string {
	all := []string{text}
	add := func(spelling string) {
		if !slices.Contains(all, spelling) {
			all = append(all, spelling)
		}
	}
	for _, text := range []string{text, strings.NewReplacer("~", "~0", "/", "~1").Replace(text)} { // the second as in JSON pointers
		add(text)
		for _, escapeHTML := range []bool{false, true} {
			var quoted strings.Builder
			enc := json.NewEncoder(&quoted)
			enc.SetEscapeHTML(escapeHTML)
			if enc.Encode(text) == nil {
				inner := quoted.String()[1:]
				add(strings.TrimSuffix(inner, "\"\n"))
			}
		}
	}
	add(strings.ReplaceAll(text, "/", `\/`)) // as PHP writes JSON
	add(url.QueryEscape(text))
	add(url.PathEscape(text))
	add(html.EscapeString(text))
	add(strings.ReplaceAll(html.EscapeString(text), "+", "&#43;"))
	return all
}

// redact is a text without secrets, and without the beginning of one where the text was cut: at its end, or at an ellipsis.
func (r redactor) redact(text string) string {
	const ellipsis, shortest = "…", 4
	parts := strings.Split(r.whole.Replace(text), ellipsis)
	for i, part := range parts {
		for _, secret := range r.secrets {
			for n := min(len(secret)-1, len(part)); n >= shortest; n-- {
				if rest, ok := strings.CutSuffix(part, secret[:n]); ok {
					part = rest + redacted
					break
				}
			}
		}
		parts[i] = part
	}
	return strings.Join(parts, ellipsis)
}

// clean is an error of a turn whose text has no secret.
func (r redactor) clean(err error) error {
	var answer *answerError
	if errors.As(err, &answer) {
		answer.answer = r.redact(answer.answer)
	}
	text := err.Error()
	cleaned := r.whole.Replace(text)
	if cleaned == text {
		return err
	}
	var unavailable *engine.UnavailableError
	if errors.As(err, &unavailable) {
		clean := *unavailable
		clean.Err = errors.New(cleaned)
		return &clean
	}
	var cut *engine.CutShortError
	if errors.As(err, &cut) {
		return &engine.CutShortError{LastWords: r.redact(cut.LastWords), Err: cut.Err}
	}
	var interrupted *engine.InterruptedError
	if errors.As(err, &interrupted) {
		return &engine.InterruptedError{Err: errors.New(cleaned)}
	}
	return errors.New(cleaned)
}
