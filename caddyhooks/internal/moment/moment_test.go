package moment_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/moment"
)

func TestMomentsAreReadInTheZoneOfNow(t *testing.T) {
	t.Parallel()
	for zone, cases := range map[string][]struct{ now, text, want string }{
		"UTC": {
			{"2026-11-17T12:30:00Z", "2h", "2026-11-17T10:30:00Z"},
			{"2026-11-17T12:30:00Z", "7d", "2026-11-10T12:30:00Z"},
			{"2026-11-17T12:30:00Z", "0s", "2026-11-17T12:30:00Z"},
			{"2026-11-17T12:30:00Z", "10:00", "2026-11-17T10:00:00Z"},
			{"2026-11-17T12:30:00Z", "12:30", "2026-11-17T12:30:00Z"},
			{"2026-11-17T12:30:00Z", "12:31", "2026-11-16T12:31:00Z"},
			{"2026-11-17T12:30:00Z", "9:05:07", "2026-11-17T09:05:07Z"},
			{"2026-03-01T00:30:00Z", "23:00", "2026-02-28T23:00:00Z"},
			{"2026-11-17T12:30:00Z", "today", "2026-11-17T00:00:00Z"},
			{"2026-01-01T00:00:00Z", "yesterday", "2025-12-31T00:00:00Z"},
			{"2026-11-17T12:30:00Z", "2026-01-31", "2026-01-31T00:00:00Z"},
			{"2026-11-17T12:30:00Z", "2026-01-31 15:04", "2026-01-31T15:04:00Z"},
			{"2026-11-17T12:30:00Z", "2026-01-31T15:04:05", "2026-01-31T15:04:05Z"},
			{"2026-11-17T12:30:00Z", "2026-01-31T15:04:05.5+02:00", "2026-01-31T13:04:05.5Z"},
			{"2026-11-17T12:30:00Z", "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"},
			{"2026-11-17T12:30:00Z", "40000d", "1970-01-01T00:00:00Z"},
			{"2026-11-17T12:30:00Z", "2026-01-31T00:00:00+24:00", "2026-01-30T00:00:00Z"},
			{"2026-11-17T12:30:00Z", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z"},
		},
		"Europe/Berlin": { // 29 March at 2:00 to 3:00, 25 October at 3:00 to 2:00
			{"2026-11-17T12:30:00Z", "10:00", "2026-11-17T09:00:00Z"},
			{"2026-11-17T23:30:00Z", "today", "2026-11-17T23:00:00Z"}, // it is the 18th there
			{"2026-11-17T23:30:00Z", "yesterday", "2026-11-16T23:00:00Z"},
			{"2026-03-29T12:00:00Z", "yesterday", "2026-03-27T23:00:00Z"},
			{"2026-03-30T12:00:00Z", "yesterday", "2026-03-28T23:00:00Z"}, // 23 hours before today
			{"2026-03-30T12:00:00Z", "today", "2026-03-29T22:00:00Z"},
			{"2026-03-30T12:00:00Z", "24h", "2026-03-29T12:00:00Z"},
			{"2026-03-29T12:00:00Z", "02:30", "2026-03-29T01:00:00Z"}, // skipped: the moment of the change
			{"2026-10-25T12:00:00Z", "02:30", "2026-10-25T00:30:00Z"}, // twice: the first one
			{"2026-10-25T00:45:00Z", "02:30", "2026-10-25T00:30:00Z"},
			{"2026-10-25T01:15:00Z", "02:30", "2026-10-25T00:30:00Z"},
			{"2026-10-25T12:00:00Z", "03:00", "2026-10-25T02:00:00Z"},
			{"2026-10-25T12:00:00Z", "2026-10-25 02:00", "2026-10-25T00:00:00Z"},
			{"2026-11-17T12:30:00Z", "2026-07-31 15:04", "2026-07-31T13:04:00Z"},
		},
		"America/New_York": {
			{"2026-11-17T03:00:00Z", "today", "2026-11-16T05:00:00Z"},
			{"2026-11-01T18:00:00Z", "01:30", "2026-11-01T05:30:00Z"},
			{"2026-03-08T18:00:00Z", "2:30", "2026-03-08T07:00:00Z"},
		},
		"Africa/Cairo":         {{"2026-04-24T12:00:00Z", "today", "2026-04-23T22:00:00Z"}}, // a day that begins at 1:00
		"Australia/Lord_Howe":  {{"2026-04-05T06:00:00Z", "01:45", "2026-04-04T14:45:00Z"}}, // clocks go by half an hour
		"Asia/Kathmandu":       {{"2026-11-17T12:00:00Z", "today", "2026-11-16T18:15:00Z"}},
		"Pacific/Kiritimati":   {{"2026-11-17T12:00:00Z", "yesterday", "2026-11-16T10:00:00Z"}},
		"America/Los_Angeles":  {{"2026-11-17T07:59:00Z", "2026-11-17", "2026-11-17T08:00:00Z"}},
		"Antarctica/Troll":     {{"2026-10-25T12:00:00Z", "02:00", "2026-10-25T00:00:00Z"}}, // clocks go by two hours
		"Africa/Casablanca":    {{"2026-11-17T12:30:00Z", "10:00", "2026-11-17T09:00:00Z"}},
		"America/Sao_Paulo":    {{"2018-11-05T12:00:00Z", "yesterday", "2018-11-04T03:00:00Z"}}, // began at 1:00
		"Pacific/Apia":         {{"2011-12-31T00:00:00Z", "today", "2011-12-30T10:00:00Z"}},     // a day was skipped before
		"Atlantic/Reykjavik":   {{"2026-11-17T12:30:00Z", "12:00", "2026-11-17T12:00:00Z"}},
		"America/Buenos_Aires": {{"2026-11-17T02:59:00Z", "yesterday", "2026-11-15T03:00:00Z"}},
	} {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			now, err := time.Parse(time.RFC3339, c.now)
			if err != nil {
				t.Fatal(err)
			}
			got, err := moment.Parse(c.text, now.In(location))
			if _, failed := got.MarshalJSON(); failed != nil {
				t.Errorf("%s, %s: %q cannot be stored: %v", zone, c.now, c.text, failed)
			}
			if want, _ := time.Parse(time.RFC3339, c.want); err != nil || !got.Equal(want) {
				t.Errorf("%s, %s: %q is %v, %v; want %s", zone, c.now, c.text, got.UTC(), err, c.want)
			}
		}
	}
}

func TestWhatIsNoMomentNamesTheForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)
	for _, text := range []string{"", " ", "-1h", "+1h", "106751992d", "tomorrow", "Today", "25:00", "10:60", "2026-02-30", "2026-01-31 25:00", "1700000000", "2026-1-1", "1h ago"} {
		if at, err := moment.Parse(text, now); err == nil || !strings.Contains(err.Error(), moment.Forms) {
			t.Errorf("%q is %v, %v", text, at, err)
		}
	}
}

func FuzzMoment(f *testing.F) {
	for _, seed := range []string{"2h", "7d", "10:00", "today", "yesterday", "2026-01-31", "2026-01-31 15:04", "2026-01-31T15:04:05Z", "1h ago", "9999999h"} {
		f.Add(seed, int64(1774742400), 1)
	}
	var zones []*time.Location
	for _, name := range []string{"UTC", "Europe/Berlin", "Africa/Cairo", "Australia/Lord_Howe", "Antarctica/Troll", "America/St_Johns"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			f.Fatal(err)
		}
		zones = append(zones, zone)
	}
	f.Fuzz(func(t *testing.T, text string, unix int64, zone int) {
		const year2100 = 4102444800
		now := time.Unix(int64(uint64(unix)%year2100), 0).In(zones[uint(zone)%uint(len(zones))])
		at, err := moment.Parse(text, now)
		if err != nil {
			return
		}
		if at.Before(time.Unix(0, 0)) {
			t.Errorf("%q at %v is %v", text, now, at)
		}
		if !strings.Contains(text, "-") && at.After(now) { // all but days are in the past
			t.Errorf("%q at %v is %v, which has not come", text, now, at)
		}
		same, err := moment.Parse(at.Format(time.RFC3339Nano), now)
		if err != nil || !same.Equal(at) {
			t.Errorf("%q at %v is %v, and then %v, %v", text, now, at, same, err)
		}
	})
}
