package settings

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// HookRate is how many runs of a hook are accepted in a time. The zero value is none.
type HookRate struct {
	Runs int
	Per  time.Duration
}

const (
	MaxRateRuns = 100_000
	MaxRateTime = 24 * time.Hour
)

// ParseRate reads "60/1h".
func ParseRate(value string) (HookRate, error) {
	count, period, _ := strings.Cut(value, "/")
	runs, err := strconv.Atoi(count)
	if err != nil || strings.HasPrefix(count, "+") {
		return HookRate{}, errors.New("must be a number of runs and a time, as in 60/1h")
	}
	per, err := caddy.ParseDuration(period)
	if err != nil {
		return HookRate{}, errors.New("must have a time after its slash, as in 60/1h")
	}
	if runs < 1 || runs > MaxRateRuns {
		return HookRate{}, fmt.Errorf("must allow 1 to %d runs", MaxRateRuns)
	}
	if per < time.Second || per > MaxRateTime {
		return HookRate{}, fmt.Errorf("must be for a time from 1s to %s", text.ShortDuration(MaxRateTime))
	}
	return HookRate{runs, per}, nil
}

func (r HookRate) String() string { return fmt.Sprintf("%d/%s", r.Runs, text.ShortDuration(r.Per)) }
