package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

// clock tells times as a person at a terminal reads them.
type clock struct{ now time.Time }

// newClock is the clock of this machine, in its time zone.
func newClock() clock { return clock{time.Now()} }

// when is a time of day, and its date if that is not today. It is "" for none.
func (c clock) when(t *time.Time) string {
	if t == nil {
		return ""
	}
	local := t.In(c.now.Location())
	if local.Format(time.DateOnly) == c.now.Format(time.DateOnly) {
		return local.Format(time.TimeOnly)
	}
	return local.Format(time.DateTime)
}

// ago is how long ago a time was, or how long it is until then, as in "4m ago" and "in 5s". It is "" for none.
func (c clock) ago(t *time.Time) string {
	switch {
	case t == nil:
		return ""
	case t.After(c.now):
		return "in " + roughly(t.Sub(c.now))
	default:
		return roughly(c.now.Sub(*t)) + " ago"
	}
}

// whenAndAgo is a time and how long ago it was.
func (c clock) whenAndAgo(t *time.Time) string {
	if t == nil {
		return ""
	}
	return c.when(t) + ", " + c.ago(t)
}

// took is how long a run took, or has taken so far. It is "" for a run that was not started.
func (c clock) took(r *api.Run) string {
	switch {
	case r.StartedAt == nil:
		return ""
	case r.FinishedAt == nil:
		return roughly(c.now.Sub(*r.StartedAt))
	default:
		return briefly(r.FinishedAt.Sub(*r.StartedAt))
	}
}

// briefly is a duration in its two largest units, as in 412ms, 18.4s, 5m and 1h30m.
func briefly(d time.Duration) string {
	if d = max(d, 0); d < time.Second {
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
	if tenths := d.Round(time.Second / 10); tenths < time.Minute {
		return strconv.FormatFloat(tenths.Seconds(), 'f', -1, 64) + "s"
	}
	return roughly(d)
}

// roughly is briefly without parts of a second.
func roughly(d time.Duration) string {
	d = max(d, 0).Round(time.Second)
	for _, unit := range []struct {
		large, small time.Duration
		names        [2]string
	}{
		{oneDay, time.Hour, [2]string{"d", "h"}},
		{time.Hour, time.Minute, [2]string{"h", "m"}},
		{time.Minute, time.Second, [2]string{"m", "s"}},
	} {
		if d < unit.large {
			continue
		}
		text := strconv.FormatInt(int64(d/unit.large), 10) + unit.names[0]
		if rest := d % unit.large / unit.small; rest > 0 {
			text += strconv.FormatInt(int64(rest), 10) + unit.names[1]
		}
		return text
	}
	return strconv.FormatInt(int64(d.Seconds()), 10) + "s"
}

const oneDay = 24 * time.Hour

// inUnits is a number of seconds as a duration.
func inUnits(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds*1000)) * time.Millisecond
}

// withCommas is a count with commas, as in 1,284.
func withCommas[Int int | int64](n Int) string { return humanize.Comma(int64(n)) }

// counted is a number of things, as in "1 run" and "1,284 runs".
func counted[Int int | int64](n Int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return withCommas(n) + " " + many
}

// shareOf is a share, as in "1.0 %".
func shareOf(part, whole int64) string {
	switch share := 100 * float64(part) / float64(max(whole, 1)); {
	case part == 0 || whole == 0:
		return "0 %"
	case share < 0.1:
		return "< 0.1 %"
	default:
		return fmt.Sprintf("%.1f %%", share)
	}
}

// byteSize is a number of bytes, as in "214 MB".
func byteSize(bytes int64) string {
	if bytes < 1024 {
		return counted(bytes, "byte", "bytes")
	}
	n, unit := float64(bytes)/1024, "KB"
	for _, next := range []string{"MB", "GB", "TB"} {
		if n < 1024 {
			break
		}
		n, unit = n/1024, next
	}
	if n < 10 {
		return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0") + " " + unit
	}
	return strconv.FormatFloat(n, 'f', 0, 64) + " " + unit
}

// Texts in a row of a table are cut to so many characters. The details of what the row is about have them whole.
const (
	maxChatCell   = 32
	maxReasonCell = 200
)

// shortText is the beginning of a text.
func shortText(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// shortChat is a chat id in a table. That of a chat that was made for one run says little.
func shortChat(chat string) string {
	const fresh = "hook:"
	if id, ok := strings.CutPrefix(chat, fresh); ok && uuid.Validate(id) == nil {
		return fresh + id[:8] + "…"
	}
	return shortText(chat, maxChatCell)
}

// statusWord is a status as people say it.
func statusWord[Status ~string](status Status) string {
	return strings.ReplaceAll(string(status), "_", " ")
}

// statusCell is the status of a run.
func statusCell(status engine.Status) terminal.Text {
	word := statusWord(status)
	switch status {
	case engine.Completed:
		return terminal.Good(word)
	case engine.Failed, engine.TimedOut, engine.Expired:
		return terminal.Bad(word)
	case engine.Cancelled:
		return terminal.Warn(word)
	default:
		return terminal.Plain(word)
	}
}

// deliveryStatusCell is the status of a delivery.
func deliveryStatusCell(status engine.DeliveryStatus) terminal.Text {
	switch status {
	case engine.Delivered:
		return terminal.Good(string(status))
	case engine.Dead:
		return terminal.Bad(string(status))
	default:
		return terminal.Warn(string(status))
	}
}

// cells are the cells of a line of a table: texts, which are plain, and terminal.Texts.
func cells(values ...any) []terminal.Text {
	all := make([]terminal.Text, len(values))
	for i, value := range values {
		if plain, ok := value.(string); ok {
			all[i] = terminal.Plain(plain)
		} else {
			all[i] = value.(terminal.Text)
		}
	}
	return all
}

// line is cells for a row of one line.
func line(values ...any) [][]terminal.Text { return [][]terminal.Text{cells(values...)} }
