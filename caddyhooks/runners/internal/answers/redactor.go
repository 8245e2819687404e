package answers

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"html"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Redactor takes the secrets of a runner out of texts that may repeat them: a runner may answer with the request that it got.
type Redactor struct {
	secrets []string // in all spellings
	whole   *strings.Replacer
}

const redacted = "REDACTED"

// NewRedactor knows a token, the user, the password and the query of a URL, and more secrets.
func NewRedactor(token, address string, more ...string) Redactor {
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
	return Redactor{secrets, strings.NewReplacer(pairs...)}
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

// Redact is a text without secrets, and without the beginning of one where the text was cut: at its end, or at an ellipsis.
func (r Redactor) Redact(text string) string {
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

// Clean is an error of a turn whose text has no secret.
func (r Redactor) Clean(err error) error {
	if err == nil {
		return nil
	}
	var answer *Error
	if errors.As(err, &answer) {
		answer.Text = r.Redact(answer.Text)
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
		return &engine.CutShortError{LastWords: r.Redact(cut.LastWords), Err: cut.Err}
	}
	var interrupted *engine.InterruptedError
	if errors.As(err, &interrupted) {
		return &engine.InterruptedError{Err: errors.New(cleaned)}
	}
	return errors.New(cleaned)
}

// CleanTurn is Clean that also takes out the token with which the agent may answer the turn later.
func (r Redactor) CleanTurn(turn *engine.Turn, err error) error {
	if err != nil && turn.Later != nil {
		err = NewRedactor(turn.Later.Token, "").Clean(err)
	}
	return r.Clean(err)
}
