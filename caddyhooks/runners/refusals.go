package runners

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
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

// agentRefusal is the error of a turn that an agent answered with a status other than 200.
func agentRefusal(status int, retryAfter time.Duration, err error) error {
	if hasNoTime(status) {
		return &engine.UnavailableError{Busy: true, RetryAfter: retryAfter, Err: err}
	}
	return err
}

// modelRefusal is the error of a turn whose model answered with a status other than 200, before it said anything.
func modelRefusal(status int, retryAfter time.Duration, err error) error {
	if status >= http.StatusInternalServerError && !hasNoTime(status) {
		return &engine.UnavailableError{Busy: true, Failing: true, RetryAfter: retryAfter, Err: err}
	}
	return agentRefusal(status, retryAfter, err)
}

// modelUnreachable is the error of a turn whose agent could not reach its model.
func modelUnreachable(err error) error { return &engine.UnavailableError{Err: err} }

// reportedRefusal is the error of a turn whose agent reports in words that its model failed, before it said anything.
func reportedRefusal(words string, err error) error {
	if status := reportedStatus.FindStringSubmatch(words); status != nil {
		code, _ := strconv.Atoi(status[1])
		return modelRefusal(code, 0, err)
	}
	switch {
	case reportsUnreachable(words):
		return modelUnreachable(err)
	case strings.Contains(words, reportedFailing):
		return modelRefusal(http.StatusInternalServerError, 0, err)
	}
	return err
}

var (
	// reportedStatus finds the status of a model in the words of Claude Code and Codex.
	reportedStatus = regexp.MustCompile(`(?:API Error: (?:Request rejected \(|Repeated )?|unexpected status |last status: )([45]\d\d)\b`)

	// reportedUnreachable finds their words for a model that they could not reach.
	reportedUnreachable = regexp.MustCompile(`API Error: (?:Connection |Unable to connect)|Unable to connect to API|error sending request`)
)

// reportsUnreachable reports whether an agent says that it could not reach its model.
func reportsUnreachable(words string) bool { return reportedUnreachable.MatchString(words) }

// lastPart is the end of a text, as much as is shown.
func lastPart(text string) string {
	if text = strings.TrimSpace(text); len(text) > maxAnswerLine {
		return text[len(text)-maxAnswerLine:]
	}
	return text
}

// reportedFailing are the words of Codex for 500, 502 and 504.
const reportedFailing = "experiencing high demand"

// statusMember is a status in a member of an error, 0 if there is none.
func statusMember(value any) int {
	text, ok := value.(string)
	if number, isNumber := value.(json.Number); isNumber {
		text, ok = number.String(), true
	}
	status, err := strconv.Atoi(text)
	if !ok || err != nil || status < http.StatusBadRequest || status > 599 {
		return 0
	}
	return status
}
