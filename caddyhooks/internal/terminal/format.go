package terminal

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// Clock tells times as a person at a terminal reads them.
type Clock struct{ Now time.Time }

// NewClock is the clock of this machine, in its time zone.
func NewClock() Clock { return Clock{time.Now()} }

// When is a time of day, and its date if that is not today. It is "" for none.
func (c Clock) When(t *time.Time) string {
	if t == nil {
		return ""
	}
	local := t.In(c.Now.Location())
	if local.Format(time.DateOnly) == c.Now.Format(time.DateOnly) {
		return local.Format(time.TimeOnly)
	}
	return local.Format(time.DateTime)
}

// Ago is how long ago a time was, or how long it is until then, as in "4m ago" and "in 5s". It is "" for none.
func (c Clock) Ago(t *time.Time) string {
	switch {
	case t == nil:
		return ""
	case t.After(c.Now):
		return "in " + Roughly(t.Sub(c.Now))
	default:
		return Roughly(c.Now.Sub(*t)) + " ago"
	}
}

// WhenAndAgo is a time and how long ago it was.
func (c Clock) WhenAndAgo(t *time.Time) string {
	if t == nil {
		return ""
	}
	return c.When(t) + ", " + c.Ago(t)
}

// Briefly is a duration in its two largest units, as in 412ms, 18.4s, 5m and 1h30m.
func Briefly(d time.Duration) string {
	if d = max(d, 0); d < time.Second {
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
	if tenths := d.Round(time.Second / 10); tenths < time.Minute {
		return strconv.FormatFloat(tenths.Seconds(), 'f', -1, 64) + "s"
	}
	return Roughly(d)
}

// Roughly is Briefly without parts of a second.
func Roughly(d time.Duration) string {
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

// InUnits is a number of seconds as a duration.
func InUnits(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds*1000)) * time.Millisecond
}

// WithCommas is a count with commas, as in 1,284.
func WithCommas[Int int | int64](n Int) string { return humanize.Comma(int64(n)) }

// Counted is a number of things, as in "1 run" and "1,284 runs".
func Counted[Int int | int64](n Int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return WithCommas(n) + " " + many
}

// ShareOf is a share, as in "1.0 %".
func ShareOf(part, whole int64) string {
	switch share := 100 * float64(part) / float64(max(whole, 1)); {
	case part == 0 || whole == 0:
		return "0 %"
	case share < 0.1:
		return "< 0.1 %"
	default:
		return fmt.Sprintf("%.1f %%", share)
	}
}

// Dollars is a sum of money, as in "$0.0042" and "$1,284.50".
func Dollars(usd float64) string {
	switch {
	case usd == 0:
		return "$0"
	case usd < 0.0001:
		return "< $0.0001"
	case usd < 100:
		return fmt.Sprintf("$%.4f", usd)
	default:
		return "$" + humanize.FormatFloat("#,###.##", usd)
	}
}

// ByteSize is a number of bytes, as in "214 MB".
func ByteSize(bytes int64) string {
	if bytes < 1024 {
		return Counted(bytes, "byte", "bytes")
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

// ShortText is the beginning of a text.
func ShortText(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// Cells are the Cells of a line of a table: texts, which are plain, and Texts.
func Cells(values ...any) []Text {
	all := make([]Text, len(values))
	for i, value := range values {
		if plain, ok := value.(string); ok {
			all[i] = Plain(plain)
		} else {
			all[i] = value.(Text)
		}
	}
	return all
}

// Line is Cells for a row of one line.
func Line(values ...any) [][]Text { return [][]Text{Cells(values...)} }

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// ShellWord is a text as a shell reads it.
func ShellWord(text string) string {
	text = Escaped(text)
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
