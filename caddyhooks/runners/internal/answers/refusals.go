package answers

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

// The rule about what a run waits for is the same for all runners, and stands here. A turn that was not taken on waits: nobody could be
// reached, or whoever was asked has no time. A model does nothing but answer. So a turn whose model failed before it said anything
// waits too, though not for ever, since the turn may be why it fails. Every other error ends the run.

// overloaded is the status of Anthropic's models when there are too many requests for them.
const overloaded = 529

// hasNoTime reports whether a status says that a request was not taken on.
func hasNoTime(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == overloaded
}

// AgentRefusal is the error of a turn that an agent answered with a status other than 200.
func AgentRefusal(status int, retryAfter time.Duration, err error) error {
	if hasNoTime(status) {
		return &engine.UnavailableError{Busy: true, RetryAfter: retryAfter, Err: err}
	}
	return err
}

// ModelRefusal is the error of a turn whose model answered with a status other than 200, before it said anything.
func ModelRefusal(status int, retryAfter time.Duration, err error) error {
	if status >= http.StatusInternalServerError && !hasNoTime(status) {
		return &engine.UnavailableError{Busy: true, Failing: true, RetryAfter: retryAfter, Err: err}
	}
	return AgentRefusal(status, retryAfter, err)
}

// ModelUnreachable is the error of a turn whose agent could not reach its model.
func ModelUnreachable(err error) error { return &engine.UnavailableError{Err: err} }

// ReportedRefusal is the error of a turn whose agent reports in words that its model failed, before it said anything.
func ReportedRefusal(words string, err error) error {
	if status := reportedStatus.FindStringSubmatch(words); status != nil {
		code, _ := strconv.Atoi(status[1])
		return ModelRefusal(code, 0, err)
	}
	switch {
	case ReportsUnreachable(words):
		return ModelUnreachable(err)
	case strings.Contains(words, reportedFailing):
		return ModelRefusal(http.StatusInternalServerError, 0, err)
	}
	return err
}

var (
	// reportedStatus finds the status of a model in the words of Claude Code and Codex.
	reportedStatus = regexp.MustCompile(`(?:API Error: (?:Request rejected \(|Repeated )?|unexpected status |last status: )([45]\d\d)\b`)

	// reportedUnreachable finds their words for a model that they could not reach.
	reportedUnreachable = regexp.MustCompile(`API Error: (?:Connection |Unable to connect)|Unable to connect to API|error sending request`)
)

// ReportsUnreachable reports whether an agent says that it could not reach its model.
func ReportsUnreachable(words string) bool { return reportedUnreachable.MatchString(words) }

// LastPart is the end of a text, as much as is shown.
func LastPart(text string) string {
	if text = strings.TrimSpace(text); len(text) > MaxLine {
		return text[len(text)-MaxLine:]
	}
	return text
}

// reportedFailing are the words of Codex for 500, 502 and 504.
const reportedFailing = "experiencing high demand"

// CutShort is the error of a turn that was ended from outside, with the end of what the agent said.
func CutShort(err error, said string) error {
	if words := oneline.Of(LastPart(said), MaxLine); words != "" && err != nil {
		return &engine.CutShortError{LastWords: words, Err: err}
	}
	return err
}
